"""Which journal the captured tables write to, and where it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.connectors.iseries import position, receivers
from tidelog.connectors.iseries.catalog import Asked, Catalog, File
from tidelog.connectors.iseries.config import Config
from tidelog.connectors.iseries.receivers import Receiver
from tidelog.errors import ConfigError, PositionLost


def journal_of(session: Asked, config: Config) -> tuple[str, str]:
    """Library and name: as the settings say, else that of the captured tables."""
    if config.journal and config.journal_library:
        return config.journal_library, config.journal
    return of_files(Catalog(session, config.selection).files(), config)


def of_files(files: Sequence[File], config: Config) -> tuple[str, str]:
    if config.journal and config.journal_library:
        return config.journal_library, config.journal
    found = sorted({file.journal for file in files if file.journal is not None})
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            "None of the captured tables is journaled.",
            hint="Run STRJRNPF FILE(library/file) JRN(library/journal) IMAGES(*BOTH), or name journal.library and "
            "journal.name.",
        )
    shown = ", ".join(f"{library}/{name}" for library, name in found)
    raise ConfigError(
        f"The captured tables write to several journals: {shown}.",
        hint="Capture the tables of one journal in one pipeline: name journal.library and journal.name, and the tables "
        "in table.include.list.",
    )


def chain_of(session: Asked, journal: tuple[str, str], anchor: Mapping[str, int] | None = None) -> tuple[Receiver, ...]:
    found = receivers.read(session.query(receivers.QUERY, journal), anchor)
    if not found:
        raise PositionLost(
            f"The journal {journal[0]}/{journal[1]} does not exist, or has no receiver that is attached.",
            hint="Correct journal.library and journal.name, or attach a receiver with CHGJRN.",
        )
    return found


def end_of(session: Asked, journal: tuple[str, str], anchor: Mapping[str, int] | None = None) -> int:
    """Behind the last entry."""
    last = chain_of(session, journal, anchor)[-1]
    return position.of(last.minute, last.last + 1)
