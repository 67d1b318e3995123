"""Where chunks rest between being read and being delivered: beside the journal, where executors reach them.

An attempt to read a chunk writes its rows and then, whole, a note about them; rows without a note do not exist. Names
are unique to the attempt, so attempts never meet, and the offset says which one counts. Nothing waits for the disk:
what a loss of power has torn is told by its checksum, and counts as lost.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import cached_property

from tidelog.contracts import Watermark
from tidelog.core.snapshot import watermark
from tidelog.core.snapshot.world import Manifest
from tidelog.journal.files import Files
from tidelog.model.schema import Table

FOLDER = "chunks"


@dataclass(frozen=True)
class Note:
    """What is known of an attempt: for the planner its manifest, for the delivery what the rows were read under."""

    manifest: Manifest
    table: str = ""
    """The table as it was, JSON."""
    watermark: str = ""
    read_us: int = 0
    letters: int = 0
    """How many rows did not fit their types, and lie in a file of their own."""
    checksum: int | None = None
    letters_checksum: int | None = None
    """Of the two files; None in notes of an older version."""

    def to_json(self) -> str:
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "manifest"}
        return json.dumps({**asdict(self.manifest), **own})

    @staticmethod
    def from_json(text: bytes | str) -> Note:
        raw = json.loads(text)
        manifest = Manifest(**{f.name: raw.pop(f.name) for f in fields(Manifest)})
        return Note(manifest, **raw)

    @cached_property
    def seen(self) -> Watermark:
        return watermark.from_json(self.watermark)

    @cached_property
    def version(self) -> Table:
        return Table.from_json(self.table)


class Stage:
    """One reader's; several readers of one journal do not meet."""

    def __init__(self, journal: str, reader: str) -> None:
        self.files = Files(journal).folder(f"{FOLDER}/{reader}")

    def attempts(self) -> dict[str, list[str]]:
        """By chunk, the attempts that left a note."""
        found: dict[str, list[str]] = {}
        for name in self.files.names(""):
            chunk, attempt, kind = name.split(".")
            if kind == "json":
                found.setdefault(chunk, []).append(attempt)
        return found

    def note(self, chunk: str, attempt: str) -> Note | None:
        """What an attempt says of itself; None when that is gone, or torn."""
        text = self.files.read(f"{chunk}.{attempt}.json")
        try:
            return Note.from_json(text) if text is not None else None
        except ValueError:
            return None

    def put(self, chunk: str, note: Note) -> None:
        self.files.write(f"{chunk}.{note.manifest.attempt}.json", note.to_json().encode())

    def rows(self, chunk: str, attempt: str) -> str:
        """The file with the rows of an attempt."""
        return f"{chunk}.{attempt}.arrow"

    def letters(self, chunk: str, attempt: str) -> str:
        """The file with the dead letters of an attempt."""
        return f"{chunk}.{attempt}.letters"

    def tidy(self) -> None:
        """Delete what attempts that died have left unfinished."""
        self.files.discard_drafts("")

    def keep(self, chunks: set[str]) -> None:
        """Delete everything but these chunks."""
        for name in self.files.names(""):
            if name.split(".")[0] not in chunks:
                self.files.delete(name)
