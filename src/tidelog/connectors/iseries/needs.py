"""What a table must be to be captured, and what to do about one that is not."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.connectors.iseries import ccsid, types
from tidelog.connectors.iseries.catalog import BOTH, File
from tidelog.contracts import Finding
from tidelog.model.selection import Selection

_LEAVE_OUT = "Leave the table out with table.exclude.list."
_LEAVE_TABLE_OUT = (
    "Leave the table out with table.exclude.list. To leave out the column is not enough: nobody knows where the ones "
    "behind it begin. Or move it to a table of its own."
)
_TEXTS = ("CHAR", "VARCHAR", "GRAPHIC", "VARGRAPHIC")


def of(file: File, journal: tuple[str, str], selection: Selection) -> Iterator[Finding]:
    """What is wrong with a table; nothing when all is well."""
    name = file.table.qualified
    shown = f"{journal[0]}/{journal[1]}"
    start = f"Run: STRJRNPF FILE({file.library}/{file.name}) JRN({shown}) IMAGES(*BOTH)"
    if file.journal is None:
        yield Finding("error", name, "The table is not journaled: its changes are not told.", start)
    elif file.journal != journal:
        theirs = f"{file.journal[0]}/{file.journal[1]}"
        yield Finding("error", name, f"The table writes to {theirs}, not to {shown}.", _LEAVE_OUT)
    elif file.images and file.images != BOTH:
        cure = f"Run: CHGJRNOBJ OBJ(({file.library}/{file.name} *FILE)) ATR(*IMAGES) IMAGES(*BOTH)"
        yield Finding("error", name, f"The journal has only {file.images} images: deletes tell no row.", cure)
    for column in types.unsupported(file.table):
        meaning = f"The column {column.name} is {column.type}, which has no known place in a journal entry."
        yield Finding("error", name, meaning, _LEAVE_TABLE_OUT)
    for column in selection.columns_of(file.table):
        if column.type in _TEXTS and not ccsid.known(types.pair(column)[1]):
            meaning = f"The column {column.name} has CCSID {types.pair(column)[1]}, which we cannot translate."
            cure = f"Leave it out: column.exclude.list {name}.{column.name}; or see from.ccsid and to.ccsid."
            yield Finding("error", name, meaning, cure)
    if names := selection.blurred_keys(file.table):
        meaning = f"The key's {', '.join(names)} is masked or cut: its rows could not be told apart."
        yield Finding("error", name, meaning, "Hash it instead, or name another key in message.key.columns.")
    if not selection.key_of(file.table):
        meaning = "The table has no key: it cannot be merged or read in chunks."
        yield Finding("warning", name, meaning, "Name one in message.key.columns, or add a primary key.")
