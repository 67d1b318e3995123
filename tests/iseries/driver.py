"""The system behind the driver's interface: `connection.cursor().execute(sql, parameters)`, `fetchmany`, `close`.

It answers the statements that the connector asks, from the system as it is at that moment, and refuses as the system
does: with the number of a message inside an SQL error. Everything passes through JSON, as it does on the wire. What is
asked of the journal is evaluated as it is written: the SELECT list, the conditions and the order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from mapepire_python import DatabaseError

from tests.iseries.select import ARGUMENTS, COLUMNS, condition, selected, told
from tests.iseries.system import JOURNAL, Receiver, System, Written

_ARGUMENT = re.compile(r"(\w+) => ('(?:[^']|'')*'|\d+)")
_QUESTION = re.compile(
    r"SELECT (?P<columns>.*)\s+FROM TABLE\(QSYS2\.DISPLAY_JOURNAL\((?P<arguments>.*)\)\) AS J"
    r"\s+WHERE (?P<condition>.*)\s+ORDER BY SEQUENCE_NUMBER",
    re.DOTALL,
)

Rows = Callable[[str], list[list[Any]]]


class Server:
    def __init__(self, system: System, rows: Rows | None = None) -> None:
        self.system = system
        self.rows = rows
        """Answers what is asked of the tables themselves."""
        self.before: Callable[[str], None] = lambda _: None
        """Called before each statement: the place for things to happen, and to fail."""
        self.asked: list[str] = []
        self.opened = 0
        self.empty_is_an_error = False
        self.authorities = {"*USE", "*OBJEXIST"}
        """Of our user to the journal. Who reads entries of no particular object needs both."""

    def connect(self, _: Any) -> Connection:
        self.opened += 1
        return Connection(self)

    def answer(self, sql: str, parameters: Sequence[Any]) -> list[list[Any]]:
        self.before(sql)
        self.asked.append(sql)
        if "DISPLAY_JOURNAL" in sql:
            return self._entries(sql)
        if "JOURNAL_RECEIVER_INFO" in sql:
            return [_receiver(r) for r in self.system.receivers] if tuple(parameters) == JOURNAL else []
        if "JOURNALED_OBJECTS" in sql:
            return [[f.library, f.name, *f.journal, f.images] for f in self.system.files.values() if f.journal]
        if "SYSCOLUMNS" in sql:
            file = self.system.files.get((parameters[0], parameters[1]))
            return [field.described() for field in file.fields] if file else []
        if "SYSKEYCST" in sql:
            return self._keys(parameters)
        if re.search(r"\bSYSTABLES\b", sql):
            return self._tables(parameters)
        if "CURRENT TIMEZONE" in sql:
            return [[self.system.zone]]
        if self.rows is None:
            raise AssertionError(f"nobody answers {sql}")
        return self.rows(sql)

    def _tables(self, parameters: Sequence[Any]) -> list[list[Any]]:
        files = self.system.files.items()
        return [[*f.sql, f.library, f.name] for place, f in files if not parameters or place == tuple(parameters)]

    def _keys(self, parameters: Sequence[Any]) -> list[list[Any]]:
        found = [f for f in self.system.files.values() if f.sql == tuple(parameters)]
        return [["PRIMARY KEY", f"PK_{f.name}", name] for f in found for name in f.key]

    def _entries(self, sql: str) -> list[list[Any]]:
        asked = _QUESTION.fullmatch(sql)
        assert asked, f"not understood: {sql}"
        given = {name: _value(text) for name, text in _ARGUMENT.findall(asked["arguments"])}
        assert given.keys() <= ARGUMENTS
        assert (given["JOURNAL_LIBRARY"], given["JOURNAL_NAME"]) == JOURNAL
        if "OBJECT_NAME" not in given and "*OBJEXIST" not in self.authorities:
            raise refused("CPF9802", "Not authorized to object QSQJRN in JRNLIB type *JRN.")
        columns, wanted = selected(asked["columns"]), condition(asked["condition"])
        found = [row for row in map(_row, self._stretch(given)) if wanted(row)]
        if not found and self.empty_is_an_error:
            raise refused("CPF7062", "No entries converted or received from journal QSQJRN.")
        return [[column(row) for column in columns] for row in found]

    def _stretch(self, given: dict[str, Any]) -> list[Written]:
        names = [(given[f"{w}_RECEIVER_LIBRARY"], given[f"{w}_RECEIVER_NAME"]) for w in ("STARTING", "ENDING")]
        assert names[0] == names[1], "a range never crosses a receiver"
        receiver = self.system.receiver(*names[0])
        if receiver is None:
            raise refused("CPF7053", "Values for RCVRNG parameter not correct; reason code 1.")
        first, last = given["STARTING_SEQUENCE"], given["ENDING_SEQUENCE"]
        if not receiver.first <= first <= last <= receiver.last:
            raise refused("CPF7054", "FROM and TO values not valid.")
        return receiver.entries[first - receiver.first : last - receiver.first + 1]


def _row(e: Written) -> dict[str, Any]:
    """The columns of DISPLAY_JOURNAL that the system knows; the others are NULL. What does not apply to an entry is
    NULL for some, and 0 or blank for others."""
    blank = e.sequence % 2 == 0
    found = dict.fromkeys(COLUMNS)
    return found | {
        "ENTRY_TIMESTAMP": e.at,
        "SEQUENCE_NUMBER": Decimal(e.sequence),
        "JOURNAL_CODE": e.code,
        "JOURNAL_ENTRY_TYPE": e.type,
        "OBJECT": f"{e.object:<30}" if e.object or blank else None,
        "COUNT_OR_RRN": Decimal(e.rrn) if e.rrn or blank else None,
        "COMMIT_CYCLE": Decimal(e.cycle) if e.cycle or blank else None,
        "NULL_VALUE_INDICATORS": e.nulls if e.nulls or blank else None,
        "ENTRY_DATA": e.data if e.data or blank else None,
    }


def _value(text: str) -> Any:
    return text[1:-1].replace("''", "'") if text.startswith("'") else int(text)


def _moment(at: Any) -> str:
    return str(at.strftime("%Y-%m-%d-%H.%M.%S.%f"))


def _receiver(r: Receiver) -> list[Any]:
    library = r.library if r.next else None
    return [r.name, r.library, r.next, library, r.status, r.first, r.last, _moment(r.attached), 1024]


def refused(number: str, text: str) -> DatabaseError:
    return told(f"[SQL0443] Trigger program or external routine detected an error. {number} {text}", "38501")


class Connection:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.closed = False

    def cursor(self) -> Cursor:
        return Cursor(self)

    def close(self) -> None:
        self.closed = True


class Cursor:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[list[Any]] = []

    def execute(self, operation: str, parameters: Sequence[Any] | None = None) -> Cursor:
        assert not self._connection.closed
        assert operation.count("?") == len(parameters or ())
        self._rows = json.loads(json.dumps(self._connection.server.answer(operation, parameters or ())))
        return self

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        assert not self._connection.closed
        taken, self._rows = self._rows[: size or 1], self._rows[size or 1 :]
        return [tuple(row) for row in taken]

    def close(self) -> None:
        self._rows = []
