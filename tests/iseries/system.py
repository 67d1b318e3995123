"""The system: files, their journal and its receivers. It writes entries as the operating system does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.iseries.records import Field, image, nulls

JOURNAL = ("JRNLIB", "QSQJRN")
START = datetime(2026, 3, 1, 8, 0)


@dataclass(frozen=True)
class File:
    library: str
    name: str
    fields: tuple[Field, ...]
    schema: str = ""
    table: str = ""
    key: tuple[str, ...] = ()
    images: str = "*BOTH"
    journal: tuple[str, str] | None = JOURNAL

    @property
    def sql(self) -> tuple[str, str]:
        return self.schema or self.library, self.table or self.name


@dataclass(frozen=True)
class Written:
    """An entry in a receiver."""

    sequence: int
    code: str
    type: str
    object: str
    rrn: int
    cycle: int
    at: datetime
    nulls: str
    data: bytes


@dataclass
class Receiver:
    name: str
    library: str
    attached: datetime
    first: int
    entries: list[Written] = field(default_factory=list)
    next: str | None = None
    status: str = "ATTACHED"

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1


class System:
    def __init__(self, files: list[File], *, zone: int = 10_000) -> None:
        self.files = {(f.library, f.name): f for f in files}
        self.zone = zone
        """CURRENT TIMEZONE: hhmmss."""
        self.clock = START
        self.receivers: list[Receiver] = []
        self.made = 0
        self.attach(reset=True)

    # -- the journal -------------------------------------------------------------------------------------------

    def attach(self, *, reset: bool = False) -> Receiver:
        """CHGJRN JRNRCV(*GEN): every receiver begins with an entry of its own."""
        old = self.receivers[-1] if self.receivers else None
        self.made += 1
        first = 1 if reset or old is None else old.last + 1
        receiver = Receiver(f"RCV{self.made:04d}", "RCVLIB", self.clock, first)
        if old is not None:
            old.next, old.status = receiver.name, "ONLINE"
        self.receivers.append(receiver)
        self.write("J", "PR")
        return receiver

    def write(
        self, code: str, type: str, object: str = "", *, rrn: int = 0, cycle: int = 0, data: bytes = b"", null: str = ""
    ) -> int:
        receiver = self.receivers[-1]
        sequence = receiver.last + 1
        receiver.entries.append(Written(sequence, code, type, object, rrn, cycle, self.clock, null, data))
        self.clock += timedelta(microseconds=137)
        return sequence

    def row(self, type: str, file: File, rrn: int, row: tuple[Any, ...], cycle: int = 0) -> int:
        return self.write(
            "R",
            type,
            named(file),
            rrn=rrn,
            cycle=cycle,
            data=image(file.fields, row),
            null=nulls(file.fields, row),
        )

    def begin(self) -> int:
        """The number of the entry that begins a transaction is the transaction's."""
        return self.write("C", "SC", cycle=self.receivers[-1].last + 1)

    def alter(self, file: File, fields: tuple[Field, ...]) -> File:
        changed = replace(file, fields=fields)
        self.files[file.library, file.name] = changed
        self.write("D", "CG", named(file))
        return changed

    def create(self, file: File) -> None:
        self.files[file.library, file.name] = file
        self.write("D", "CT", named(file))

    def receiver(self, library: str, name: str) -> Receiver | None:
        return next((r for r in self.receivers if (r.library, r.name) == (library, name)), None)


def named(file: File) -> str:
    """File, library and member, ten letters each."""
    return f"{file.name:<10}{file.library:<10}{file.name:<10}"
