"""The shape of log records between capture, journal and decoding.

A block holds records of one version of one table, in log order. The reader of the log knows only what stands in
these columns; `payload` is the database's own bytes and is decoded on the executors.
"""

from __future__ import annotations

from enum import StrEnum


class Op(StrEnum):
    """What a record is; the first six are the operations of the envelope."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "t"
    MESSAGE = "m"
    SCHEMA = "s"
    """The table's description changed here, whether or not a row did."""
    HEARTBEAT = "h"


class Mark(StrEnum):
    """What a mixed log says of a transaction."""

    BEGIN = "b"
    COMMIT = "c"
    ROLLBACK = "r"
    UNDO = "u"
    """The newest record of the transaction with this key does not count, and neither does its predecessor from then on:
    each undo takes one record."""
    UNDO_ALL = "a"
    """No record of the transaction with this key counts, of those so far."""
