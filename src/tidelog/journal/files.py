"""Where a journal lies: a local folder or any pyarrow filesystem (S3, GCS, HDFS, NFS).

Files are always written whole and never changed. On a local disk a file gets its name only when it is complete; an
object store shows an object only when it is closed, and one whose writer failed is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from tidelog.errors import ConfigError


@dataclass(frozen=True)
class Files:
    """A folder by its URI. Pickles as the URI alone, so executors open it with their own credentials."""

    uri: str

    @property
    def local(self) -> bool:
        return "://" not in self.uri or self.uri.startswith("file://")

    @cached_property
    def _place(self) -> tuple[fs.FileSystem, str]:
        if "://" not in self.uri:
            return fs.LocalFileSystem(), str(Path(self.uri).absolute())
        try:
            return fs.FileSystem.from_uri(self.uri)  # type: ignore[no-any-return]
        except (pa.ArrowInvalid, OSError) as exc:
            scheme = urlsplit(self.uri).scheme
            raise ConfigError(
                f"The journal's path with scheme {scheme!r} can't be opened: {exc}.",
                hint="Use a local folder, s3://, gs://, hdfs:// or file://.",
            ) from exc

    def folder(self, name: str) -> Files:
        """A folder inside this one."""
        if "://" not in self.uri:
            return Files(f"{self.uri.rstrip('/')}/{name}")
        parts = urlsplit(self.uri)
        return Files(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def path(self, name: str) -> str:
        return f"{self._place[1].rstrip('/')}/{name}"

    def names(self, folder: str) -> list[str]:
        selector = fs.FileSelector(self.path(folder).rstrip("/"), allow_not_found=True)
        try:
            found = self._place[0].get_file_info(selector)
        except FileNotFoundError:  # Arrow looks twice, and somebody has made the folder in between
            return []
        return sorted(f.base_name for f in found if f.type == fs.FileType.File and not f.base_name.endswith(".tmp"))

    def write(self, name: str, content: pa.Buffer | bytes, *, durable: bool = False) -> None:
        """Writes a whole file. With `durable`, the file and its name are on the disk then."""
        with self.create(name, durable=durable) as out:
            out.write(content)
        if durable and self.local:
            _sync(str(Path(self.path(name)).parent))

    @contextmanager
    def create(self, name: str, *, durable: bool = False) -> Iterator[pa.NativeFile]:
        """A file that gets its name when it is complete. `durable`: then it is on the disk, not only on its way there,
        and its name is after a `sync` of the folder; an object store has both anyway."""
        system, final = self._place[0], self.path(name)
        if isinstance(system, fs.LocalFileSystem):
            Path(final).parent.mkdir(parents=True, exist_ok=True)
        target = _draft(final) if self.local else final
        try:
            with system.open_output_stream(target) as out:
                yield out
        except BaseException:
            with suppress(OSError):  # what failed is told; what it leaves has a name that nobody looks for
                system.delete_file(target)
            raise
        if durable and self.local:
            _sync(target)
        if target != final:
            system.move(target, final)

    def sync_draft(self, name: str) -> None:
        """What is written of a file that is not complete yet is on the disk: less is left for its end."""
        if self.local:
            _sync(_draft(self.path(name)))

    def sync(self, folder: str) -> None:
        """The names in a folder are on the disk, too."""
        if self.local:
            _sync(self.path(folder))

    def read(self, name: str) -> bytes | None:
        """The file's content; None when there is no such file."""
        try:
            with self._place[0].open_input_stream(self.path(name)) as source:
                return source.read()  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def open(self, name: str) -> pa.NativeFile:
        if self.local:
            return pa.memory_map(self.path(name))
        return self._place[0].open_input_file(self.path(name))

    def discard_drafts(self, folder: str) -> None:
        """Delete what a writer that died has left unfinished."""
        if self.local:
            for draft in Path(self.path(folder)).glob("*.tmp"):
                draft.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        try:
            self._place[0].delete_file(self.path(name))
        except FileNotFoundError:
            return


def _draft(path: str) -> str:
    return f"{path}.tmp"


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
