"""Staged chunks: a file that is not whole is no file, and a note says what whole is."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidelog.core.snapshot.world import Manifest
from tidelog.engine.stage import Note, Stage
from tidelog.journal.files import Files
from tidelog.spark import arrow_files

ROWS = pa.table({"id": range(1000), "note": ["a text"] * 1000})
NOTE = Note(Manifest("a1", 1000, 12), "{}", "{}", 7, 2, 11, 12)


def test_a_note_comes_back_as_it_was(tmp_path: Path) -> None:
    stage = Stage(str(tmp_path), "main")
    stage.put("c1", NOTE)
    assert (stage.attempts(), stage.note("c1", "a1")) == ({"c1": ["a1"]}, NOTE)


def test_a_note_of_an_older_version_has_no_checksums() -> None:
    raw = {k: v for k, v in json.loads(NOTE.to_json()).items() if "checksum" not in k}
    assert Note.from_json(json.dumps(raw)).checksum is None


@pytest.mark.parametrize("torn", [b"", NOTE.to_json().encode()[:40], bytes(120)])
def test_a_torn_note_is_none(tmp_path: Path, torn: bytes) -> None:
    stage = Stage(str(tmp_path), "main")
    stage.files.write("c1.a1.json", torn)
    assert stage.note("c1", "a1") is None


def test_a_file_is_loaded_whole_or_not_at_all(tmp_path: Path) -> None:
    files, content = Files(str(tmp_path)), arrow_files.dump(ROWS).to_pybytes()
    files.write("whole", content)
    assert arrow_files.load(files, "whole", zlib.crc32(content)) == ROWS
    for length in [0, 1, 8, 100, len(content) // 2, len(content) - 1]:
        files.write(f"cut{length}", content[:length])
        assert arrow_files.load(files, f"cut{length}") is None


def test_holes_show_by_the_checksum(tmp_path: Path) -> None:
    files, content = Files(str(tmp_path)), arrow_files.dump(ROWS).to_pybytes()
    middle = len(content) // 2
    files.write("holed", content[:middle] + bytes(512) + content[middle + 512 :])
    assert arrow_files.load(files, "holed") is not None
    assert arrow_files.load(files, "holed", zlib.crc32(content)) is None


def test_what_is_poured_is_drawn_batch_by_batch(tmp_path: Path) -> None:
    files, batches = Files(str(tmp_path)), ROWS.to_batches(max_chunksize=300)
    written = arrow_files.pour(files, "keys", ROWS.schema, iter(batches))
    content = files.read("keys") or b""
    assert written == arrow_files.Written(1000, len(content), zlib.crc32(content))
    assert [batch.num_rows for batch in arrow_files.draw(files, "keys")] == [300, 300, 300, 100]
    assert arrow_files.load(files, "keys", written.checksum) == ROWS
    assert arrow_files.schema_of(files, "keys", written.checksum) == ROWS.schema


def test_a_poured_file_that_is_not_whole(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    written = arrow_files.pour(files, "keys", ROWS.schema, ROWS.to_batches(max_chunksize=300))
    content = files.read("keys") or b""
    for length in [0, 100, len(content) - 1]:
        files.write("cut", content[:length])
        assert arrow_files.schema_of(files, "cut", written.checksum) is None
        assert arrow_files.schema_of(files, "cut", None) is None
    files.write("holed", content[:5000] + bytes(512) + content[5512:])
    assert arrow_files.schema_of(files, "holed", written.checksum) is None
    assert arrow_files.schema_of(files, "gone", written.checksum) is None


def test_pouring_that_breaks_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise ConnectionError

    with pytest.raises(ConnectionError):
        arrow_files.pour(Files(str(tmp_path)), "keys", ROWS.schema, broken())
    assert list(tmp_path.iterdir()) == []
