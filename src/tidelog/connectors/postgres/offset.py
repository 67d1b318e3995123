"""The offset document of PostgreSQL connectors, with the keys their users know.

We deliver whole transactions, so the three LSNs agree: everything before them is delivered. A document that another
connector wrote in the middle of a transaction is read as its last commit: the transaction comes again as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.connectors.postgres import position
from tidelog.errors import ConfigError

_INTEGERS = ("lsn", "lsn_proc", "lsn_commit", "txId", "ts_usec", "xmin", "lsn_events_processed")


def partition(topic_prefix: str) -> dict[str, str]:
    return {"server": topic_prefix}


def document(at: int, xid: int, committed: int) -> dict[str, int]:
    lsn = position.resume(at)
    written = {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn}
    return written | ({"txId": xid, "ts_usec": committed} if committed else {})


def position_of(read: Mapping[str, Any]) -> int:
    """Where a document says that reading goes on."""
    for name in _INTEGERS:
        if read.get(name) is not None and (isinstance(read[name], bool) or not isinstance(read[name], int)):
            raise ConfigError(f"The offset's {name} is {read[name]!r}, not a whole number.", hint="Correct it.")
    for name in ("lsn_commit", "lsn_proc", "lsn"):
        if read.get(name) is not None:
            return int(read[name])
    raise ConfigError("The offset has none of lsn_commit, lsn_proc and lsn.", hint="Give at least lsn.")
