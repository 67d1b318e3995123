"""What a driver's error means, by its SQLSTATE: what a setting cures is a `ConfigError`, a log that is gone is a
`PositionLost`, and everything that time may cure is a `TransientError`.

A connection that fails tells none: there the words decide.
"""

from __future__ import annotations

import re

from tidelog.connectors.postgres.config import Config
from tidelog.errors import ConfigError, DatabaseAway, LockTimeout, PositionLost, SlotBusy, TidelogError, TransientError

START_OVER = (
    "A pipeline goes on after `tidelog offsets delete`: with a new slot, and all tables are read anew. With "
    "snapshot.mode: when_needed it does so by itself. A plain query needs a new name and checkpoint."
)

UNREACHABLE = "Check database.hostname and database.port, and that the server runs and is reachable."

_TLS = "TLS"
SETTINGS_CURE = {
    "28000": "Check database.user and database.sslmode, and pg_hba.conf on the server.",
    "28P01": "Check database.user and database.password.",
    "3D000": "Check database.dbname.",
    "42501": "Grant the role what it lacks; `tidelog check` prints the SQL.",
    "55000": "`tidelog check` says which server setting is missing.",
    "53400": "Raise max_replication_slots, or drop a slot that nobody reads.",
    "42704": "`tidelog check` says what is missing.",
    _TLS: "Check database.sslmode, database.sslrootcert, and database.sslcert with its database.sslkey; "
    "under verify-full the server's certificate must bear the name in database.hostname.",
}
_CONNECT_STATES = (
    (re.compile(r"password"), "28P01"),
    (re.compile(r"database .*does not exist"), "3D000"),
    (re.compile(r"pg_hba\.conf|role .*does not exist"), "28000"),
    (re.compile(r"certificate (verify|file|present)|(root|server|client) certificate|private key file"), _TLS),
    (re.compile(r"does not support SSL|alert (unknown ca|bad certificate)|certificate authentication"), _TLS),
)
"""What a connection that fails tells in words alone: the driver gives no SQLSTATE then, and TLS has none."""
_TIME_CURES = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE: connection, conflict of transactions, resources, state, intervention, system."""
SESSION_ENDED = ("25P03", "25P04")
"""The server ended a session that was idle in a transaction, or a transaction that took too long: the next may not."""
_NO_CONNECTION = ("", "08")
"""The driver gives no SQLSTATE for a connection that could not be opened or was cut."""
CANNOT_CONNECT_NOW = "57P03"
"""Stands for any refusal of a server that answers: it starts, ends, or has no connection left."""
_SLOT_BUSY = "55006"
_LOCK_NOT_AVAILABLE = "55P03"
_UNDEFINED = "42704"
_PUBLICATION_MISSING = re.compile(r"publication .*does not exist")


def error(config: Config, state: str, text: str) -> TidelogError:
    """`state` may be empty."""
    if state == _SLOT_BUSY:
        return SlotBusy(f"Slot {config.slot} is in use by another reader: {text}.")
    if "can no longer" in text or "invalidated" in text or ("slot" in text and "does not exist" in text):
        return PositionLost(
            f"The replication slot {config.slot} is gone or was invalidated by the server: {text}.",
            hint=f"Changes since the last delivered position are lost. {START_OVER}",
        )
    if state == _UNDEFINED and _PUBLICATION_MISSING.search(text):
        return ConfigError(
            f"The publication {config.publication} was dropped while the slot {config.slot} still needed it, so the "
            f"server can't decode the changes since then: {text}.",
            hint="Creating it again does not help. Start over: SELECT pg_drop_replication_slot"
            f"('{config.slot}'); then `tidelog offsets delete`, and start again: all tables are read anew.",
        )
    if state in SETTINGS_CURE:
        return ConfigError(f"PostgreSQL at {config.host}:{config.port} says: {text}.", hint=SETTINGS_CURE[state])
    said = f"PostgreSQL at {config.host}:{config.port} says: {text or 'connection lost'}."
    if state == _LOCK_NOT_AVAILABLE:
        return LockTimeout(said)
    return DatabaseAway(said, hint=UNREACHABLE) if state[:2] in _NO_CONNECTION else TransientError(said)


def unanswered(config: Config, seconds: float) -> DatabaseAway:
    """Of a server that accepts what is sent, and sends nothing back, or to which no packet gets through."""
    return DatabaseAway(
        f"PostgreSQL at {config.host}:{config.port} has not answered for {seconds:.0f} s.", hint=UNREACHABLE
    )


def in_bulk(config: Config, state: str, text: str) -> TidelogError:
    told = re.search(r"(?:ERROR|FATAL):\s+(.*)", text)
    reason = told[1].strip() if told else reason_of(text)
    state = state.strip("\0") or connect_state(reason)
    if state and state not in SETTINGS_CURE and state[:2] not in _TIME_CURES:
        return ConfigError(f"PostgreSQL refused a statement: {reason}.")
    return error(config, state, reason.rstrip("."))


def connect_state(text: str) -> str:
    """The SQLSTATE of a connection that failed for this reason; empty where the reason tells none."""
    return next((state for words, state in _CONNECT_STATES if words.search(text)), "")


def is_refusal(text: str) -> bool:
    """Whether a server has answered the attempt to connect, according to what libpq says of it."""
    return "FATAL:" in text


def reason_of(text: str) -> str:
    """The reason in what libpq says of a failed connection; the address before it is ours to tell. Of several
    addresses, the one that a setting cures says more than those where nobody listens."""
    first = text.strip().splitlines()[0] if text.strip() else "connection lost"
    told = [line for line in text.splitlines() if "failed: " in line]
    chosen = next((line for line in told if connect_state(line.rpartition("failed: ")[2])), first)
    return chosen.rpartition("failed: ")[2].removeprefix("FATAL:").strip()
