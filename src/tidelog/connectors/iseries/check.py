"""Is the system ready for capture? Each finding says what it means and what exactly cures it. The check only reads."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.connectors.iseries import needs, queries
from tidelog.connectors.iseries.catalog import Catalog
from tidelog.connectors.iseries.client import UNREACHABLE, Session
from tidelog.connectors.iseries.config import Config
from tidelog.connectors.iseries.journals import chain_of, of_files
from tidelog.contracts import Finding
from tidelog.core.settings import counted
from tidelog.errors import TidelogError


def findings(config: Config) -> list[Finding]:
    """Whatever was found before something failed is kept."""
    found: list[Finding] = []
    try:
        with Session(config) as session:
            found.append(Finding("ok", "connection", f"{config.user} is logged in to {config.host}:{config.port}."))
            found.extend(_system(session, config))
    except TidelogError as exc:
        found.append(Finding("error", "check" if found else "connection", exc.message, exc.hint or UNREACHABLE))
    return found


def _system(session: Session, config: Config) -> Iterator[Finding]:
    files = Catalog(session, config.selection, config.snapshot.heard_table, config.ccsids).files()
    if not files:
        yield Finding("error", "tables", "No table matches the lists.", "Correct table.include.list and the others.")
        return
    yield Finding("ok", "tables", f"{counted(len(files), 'table')} {'is' if len(files) == 1 else 'are'} captured.")
    journal = of_files(files, config)
    chain = chain_of(session, journal)
    yield Finding(
        "ok",
        "journal",
        f"{journal[0]}/{journal[1]} reaches from {chain[0].shown}, entry {chain[0].first}, to {chain[-1].shown}, entry "
        f"{chain[-1].last}.",
    )
    last = chain[-1]
    # To read entries takes more authority than to read about them, so one is read.
    session.query(queries.entries(journal, last, last.last, last.last, libraries=[], width=1))
    if len(chain) == 1:
        meaning = "The journal has a single receiver: if it is deleted as soon as it is detached, changes are lost."
        yield Finding("warning", "receivers", meaning, "Keep receivers until they are delivered: CHGJRN DLTRCV(*NO).")
    for file in files:
        yield from needs.of(file, journal, config.selection)
