"""Arrow files of rows: small ones are written and read whole, those of any size a batch at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.ipc

from tidelog.journal.files import Files

_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Written:
    """What tells a whole file from a torn one."""

    rows: int
    size: int
    checksum: int


def write(files: Files, name: str, rows: pa.Table) -> Written:
    content = dump(rows)
    files.write(name, content)
    return Written(rows.num_rows, int(content.size), zlib.crc32(content))


def dump(rows: pa.Table) -> pa.Buffer:
    """A table as an Arrow file: written fast, and mapped into memory when it is read."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def load(files: Files, name: str, checksum: int | None = None) -> pa.Table | None:
    """None when the file is gone, or torn: cut, or with holes that only the checksum tells."""
    try:
        with files.open(name) as source:
            content = source.read_buffer()
    except FileNotFoundError:
        return None
    if checksum is not None and zlib.crc32(content) != checksum:
        return None
    try:
        return pa.ipc.open_file(content).read_all()
    except (pa.ArrowInvalid, OSError):
        return None


def pour(files: Files, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write batches as they come: no more than one of them is held."""
    rows = 0
    with files.create(name) as out:
        counted = _Counted(out)
        with pa.ipc.new_file(pa.PythonFile(counted, mode="w"), schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
    return Written(rows, counted.size, counted.checksum)


def draw(files: Files, name: str) -> Iterator[pa.RecordBatch]:
    """Read a file as it was poured."""
    with files.open(name) as source:
        reader = pa.ipc.open_file(source)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def schema_of(files: Files, name: str, checksum: int | None) -> pa.Schema | None:
    """None when the file is gone, or torn. It is looked through without being held."""
    try:
        with files.open(name) as source:
            found = 0
            while block := source.read(_BLOCK_BYTES):
                found = zlib.crc32(block, found)
            return pa.ipc.open_file(source).schema if checksum in (None, found) else None
    except (pa.ArrowInvalid, OSError):
        return None


class _Counted:
    """Counts what is written through it."""

    def __init__(self, out: pa.NativeFile) -> None:
        self._out, self.size, self.checksum, self.closed = out, 0, 0, False

    def write(self, content: bytes) -> int:
        self._out.write(content)
        self.size, self.checksum = self.size + len(content), zlib.crc32(content, self.checksum)
        return len(content)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._out.flush()

    def close(self) -> None:
        """Whoever opened the file closes it."""
