"""Every seam on one page: what the rooms of tidelog promise each other.

Data crosses the seams as Arrow, in the four shapes below; everything else is a frozen value of `tidelog.model`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.model import control
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

RECORDS = pa.schema(
    [
        ("position", pa.int64()),  # where the transaction's commit stands in the log
        ("ordinal", pa.int64()),  # place in the transaction, from 0
        ("table_ordinal", pa.int64()),  # place among the transaction's records of this table, from 0
        ("xid", pa.int64()),  # transaction id, widened so that it never wraps
        ("committed", pa.int64()),  # commit time, microseconds since 1970
        ("lsn", pa.int64()),  # where the record itself stands in the log
        ("op", pa.uint8()),  # ASCII code of `model.record.Op`
        ("origin", pa.string()),  # replication origin, null for local changes
        ("payload", pa.binary()),  # the database's own bytes
    ]
)
"""Records of one table version, in log order: what capture writes and decoding reads."""

TRANSACTIONS = pa.schema(
    [
        ("position", pa.int64()),
        ("end", pa.int64()),  # the log goes on here once the transaction is delivered
        ("xid", pa.int64()),
        ("committed", pa.int64()),
        ("events", pa.int64()),
        ("bytes", pa.int64()),
        ("collections", pa.string()),  # JSON {table: events}; null unless transaction metadata is asked for
        ("note", pa.string()),  # what the connector has to know to read on from `end`; null when that is enough
    ]
)
"""Complete transactions in commit order."""

MARKS = pa.schema(
    [
        ("ordinal", pa.int64()),  # place in the reading, among the records of all blocks
        ("xid", pa.int64()),
        ("kind", pa.uint8()),  # ASCII code of `model.record.Mark`
        ("key", pa.int64()),  # of the records that are undone
        ("position", pa.int64()),  # where the commit stands in the log; at a begin, where the transaction begins
        ("end", pa.int64()),  # the log goes on here once the transaction is delivered
        ("committed", pa.int64()),  # commit time, microseconds since 1970
        ("note", pa.string()),  # as in `TRANSACTIONS`
    ]
)
"""What becomes of transactions that are told in pieces, in log order."""

FAILURES = pa.schema(
    [
        ("table", pa.string()),
        ("position", pa.int64()),
        ("ordinal", pa.int64()),
        ("xid", pa.int64()),
        ("op", pa.string()),
        ("reason", pa.string()),
        ("payload", pa.binary()),
    ]
)
"""Records that could not be decoded, raw, with the reason: the dead letters."""

ENVELOPE = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("source", pa.string()),
        ("op", pa.string()),
        ("ts_ms", pa.int64()),
        ("ts_us", pa.int64()),
        ("ts_ns", pa.int64()),
        (
            "transaction",
            pa.struct([("id", pa.string()), ("total_order", pa.int64()), ("data_collection_order", pa.int64())]),
        ),
    ]
)
"""The Debezium envelope over many tables; `key`, `before`, `after` and `source` are JSON texts."""


@dataclass(frozen=True)
class Block:
    """Records of one table version; `table` is None for records that belong to no table."""

    table: Table | None
    records: pa.RecordBatch


@dataclass(frozen=True)
class Extent:
    """Records of one transaction that were laid down before its commit was known."""

    table: Table | None
    path: str
    index: int
    first: int
    last: int
    """Row range [first, last) of a block in that file."""
    ordinal: int
    """Of the first record."""
    bytes: int
    checksum: int


@dataclass(frozen=True)
class Portion:
    """What a tail read in one go. Rows past `end` belong to a transaction whose commit is still to come."""

    end: int
    blocks: Sequence[Block]
    transactions: pa.RecordBatch
    extents: Sequence[Extent] = ()
    """Of the only transaction that ends here: what comes before its records in `blocks`."""


@dataclass(frozen=True)
class Mixed:
    """What a tail read in one go from a log that mixes transactions, most of them still open.

    Until the commit comes, some columns of `RECORDS` mean something else: `ordinal` is the record's place in this
    reading, one count over all blocks and marks; `position` is the key by which the record can be undone, 0 for none;
    `table_ordinal` and `committed` are 0.
    """

    blocks: Sequence[Block]
    marks: pa.RecordBatch
    resume: int
    """Who has kept all that was read may read on from here."""
    merged: frozenset[str] = frozenset()
    """Fingerprints of the table versions of which several records may tell one change: see `Tail.merging`."""


@dataclass(frozen=True)
class Limits:
    """When an open transaction of a mixed log is given up; 0 is never."""

    age_s: float = 0.0
    events: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Kept:
    """What a buffer still has of an earlier reading of a mixed log."""

    resume: int
    """The last `Mixed.resume` of which all is there."""
    open: Mapping[int, int]
    """The open transactions by id, each with the place where it begins."""
    given_up: frozenset[int] = frozenset()
    """Those of which nothing is there any more, nor wanted."""


class Merging(Protocol):
    """Joins records of a transaction that tell one change together. What comes out has the ordinal of the first."""

    def feed(self, block: Block) -> Sequence[Block]: ...

    def close(self) -> Sequence[Block]: ...


@dataclass(frozen=True)
class Decoded:
    rows: pa.RecordBatch
    failures: pa.RecordBatch | None = None


class Decoder(Protocol):
    """Turns blocks into rows; pure and vectorised, so it runs anywhere."""

    def schema(self, table: Table, selection: Selection) -> pa.Schema:
        """The typed shape: the table's columns, then `_op` … `_unchanged`; every field nullable."""

    def typed(self, records: pa.RecordBatch, table: Table, selection: Selection) -> Decoded: ...

    def envelope(self, records: pa.RecordBatch, table: Table | None, selection: Selection) -> Decoded: ...

    def texts(self, records: pa.RecordBatch, table: Table, selection: Selection) -> Decoded:
        """Changes as the database writes them: the texts of all columns of the table, then `_op` … `_unchanged`; the
        window of a chunk that was read as texts. Nothing is masked, and no operation is skipped."""

    def read_envelope(
        self,
        rows: pa.Table | pa.RecordBatch,
        table: Table,
        selection: Selection,
        *,
        snapshot: str,
        position: int,
        ts_us: int,
    ) -> Decoded:
        """Rows of a chunk, the texts of all columns of the table, as `r` events; `snapshot` is what their source says
        of it, such as `incremental`."""


class Tail(Protocol):
    """An open reader of a database's log, used by one thread."""

    def poll(self, wait_s: float, eager: bool) -> Portion | Mixed | None:
        """What has arrived, or None. `eager` hands over the last complete transaction without gathering more."""

    def merging(self, xid: int) -> Merging:
        """For a transaction of a mixed log that has records of `Mixed.merged`; they are fed in log order, undone ones
        left out."""

    def acknowledge(self, position: int) -> None:
        """Everything before `position` is delivered: the database may forget it."""

    def seen(self) -> int:
        """The log is known up to here, also where nothing captured happened."""

    def reached(self) -> int:
        """At least `seen`: all that was committed when the log ended here has come. What comes later may stand before
        it, so this is no place to acknowledge."""

    def quiet(self) -> bool:
        """Whether no transaction is half read, and nothing waits for its place."""

    def keep_alive(self) -> None:
        """Tell the database that we live, while nothing is read."""

    def ping(self) -> None:
        """Ask the database how far its log has come; `seen` knows it soon after."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Finding:
    """One thing that `check` looked at. `cure` is what to run or change; empty when all is well."""

    level: str
    """`ok`, `warning` or `error`."""
    subject: str
    meaning: str
    cure: str = ""


@dataclass(frozen=True)
class Lag:
    bytes: int
    """How much of the log is not yet acknowledged."""
    kept_bytes: int
    """How much of it the server keeps for us: long transactions hold back more than what is pending."""
    safe_bytes: int | None = None
    """How much more the server will keep before it gives up on us; None when it has no limit."""


@dataclass(frozen=True)
class CatalogText:
    """What the catalog showed of a table at some moment."""

    text: str
    """Differs after rows were changed in a way that the log does not tell, or tells ambiguously. It may differ for
    other reasons: `Connector.unlogged_change` says."""
    moment: str = ""
    """When it was read, as the connector counts; empty if that is not known any more."""


@dataclass(frozen=True)
class UnloggedChange:
    """Rows of a table are no longer as the log left them."""

    reason: str
    """A clause for people: what was done, such as `the partition public.p1 was attached with rows`."""
    only_removes: bool = False
    """Rows went away; those that are left are as they were."""


Key = tuple[str | None, ...]
"""Values of key columns as the database writes them. Only the database ever compares two keys."""


@dataclass(frozen=True)
class Scan:
    """How a table is walked: by the columns of `key`, in their order; by the place of its rows when there are none."""

    table: Table
    key: tuple[str, ...]
    condition: str = ""
    """SQL that the rows have to fulfil, as a user wrote it; empty for all rows."""
    columns: tuple[str, ...] = ()
    """Only these of the delivered columns; empty for all."""
    export: str = ""
    """The exported snapshot that all chunks of this walk share; a walk by place needs one, because rows move."""


@dataclass(frozen=True)
class Span:
    """The keys of one chunk: low < key <= high. No `low` is the beginning, no `high` the end of the table."""

    low: Key | None
    high: Key | None


class Watermark(Protocol):
    """What a chunk has seen of the log."""

    @property
    def exact(self) -> bool:
        """Whether it has seen nothing else."""

    def covers(self, positions: npt.NDArray[np.int64], xids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Of committed changes, by their transactions' positions and ids, those that the chunk has seen."""

    def to_json(self) -> str: ...


class OpenChunk(Protocol):
    """A chunk that is being read, in one transaction of the database."""

    table: Table
    """The table as it is in that transaction."""
    watermark: Watermark

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The delivered columns, typed exactly as the stream decodes them; or, if texts were asked for, the database's
        texts of all columns of the table. At least one batch, also of no rows."""

    def letters(self) -> pa.Table:
        """Of the rows that came, those that do not fit their types, as `FAILURES`; they have no place in the log."""

    def end(self) -> int:
        """End the transaction. Once the log is known up to the position that comes back, it has told everything that
        the chunk has seen."""

    def close(self) -> None:
        """Give the connection back, also after a failure."""


class ChunkReader(Protocol):
    """Reads chunks; made on an executor from the connector's options alone."""

    def open(self, scan: Scan, span: Span, *, attempt: str, asked_by: str = "", texts: bool = False) -> OpenChunk:
        """`attempt` is unique: where the source is told of windows, it is their id. A table that is gone or cannot be
        read this way raises `ConfigError`, what time may cure `TransientError`."""

    def close(self) -> None: ...


WatchWait = Callable[[str], None]
"""Called several times a second, from a thread of its own, while a statement runs that may wait for other sessions of
the database. Gets a sentence that says which ones, or an empty text as long as none has to be told. What it raises ends
the statement and is raised to the caller. After the statement has succeeded, what it raises has no effect."""


def ignore_wait(_: str) -> None:
    """A `WatchWait` that waits as long as it takes."""


class Connector(Protocol):
    """One database, as the engine sees it."""

    def check(self) -> list[Finding]: ...

    def prepare(self, *, resuming: bool = False, looking: bool = False, watch: WatchWait = ignore_wait) -> int:
        """Create what the capture needs, if it is missing, and return the position where it starts. When `resuming`,
        what held our place in the log must still be there, or the position is lost. Who is only `looking` changes
        nothing that is there. `watch` sees why a statement waits for others."""

    def find_server_state(self) -> str:
        """What the server keeps for this pipeline since an earlier start, in words, such as its replication slot;
        empty when there is nothing. Changes nothing."""

    def tail(
        self,
        start: int,
        known: Sequence[Table],
        memory_bytes: int,
        *,
        note: str | None = None,
        kept: Kept | None = None,
    ) -> Tail:
        """Read the log from `start`. `known` are the tables as the journal last saw them; a portion stays
        below `memory_bytes`. `note` is that of the last transaction before `start`; `kept` are the open transactions
        of a mixed log that need not be read again."""

    def scope(self) -> str:
        """Of a mixed log that is read on from what was kept of it: all that decides what is kept, as a word that
        changes with it. Empty: open transactions are told again from their beginning."""

    def limits(self) -> Limits:
        """When open transactions are given up."""

    def log_end(self) -> int:
        """Where the database's log ends now."""

    def reach(self) -> int:
        """The oldest place of the log that the database still gives us."""

    def names(self) -> Mapping[str, str]:
        """What this source is called: its `server` and `database`, by which its offsets' partition is known."""

    def position_of(self, document: Mapping[str, Any]) -> int:
        """The place that an offset means, in the words of this connector's users."""

    def through(self, log_end: int) -> int:
        """The last position that stands at this place of the log, records of our own included."""

    def decoder(self) -> Decoder: ...

    def selection(self) -> Selection: ...

    def snapshot_settings(self) -> Any:
        """The `SnapshotSettings` of `core.snapshot.settings`, which this page may not import."""

    def tables(self) -> list[Table]:
        """The captured tables as they are now."""

    def untold(self, tables: Sequence[Table]) -> list[Table]:
        """Those of these captured tables whose changes the log does not tell: since we began they were made, or came
        to match."""

    def log_coverage(self, ids: Sequence[int]) -> Mapping[int, frozenset[str]]:
        """Of these tables, those that are captured now, each with opaque marks of what makes its changes appear in
        the log; no marks where they don't appear, or only in part. Between two calls that share a mark of a table, all
        of its changes are in the log."""

    def present(self, ids: Sequence[int]) -> list[Table]:
        """These tables as they are now, captured or not; what is gone is left out."""

    def captured_names(self) -> Mapping[int, str]:
        """The captured tables by id, cheap enough to be read every few seconds. Empty where a table that is dropped
        and created again needs nothing: the log tells of every table."""

    def publish(self, tables: Sequence[Table]) -> None:
        """Let the log tell of these tables from now on, where that is up to us. Raises `LockTimeout` if another session
        holds one of them for more than a moment."""

    def contents(self, ids: Sequence[int]) -> Mapping[int, CatalogText]:
        """What the catalog shows of each table; nothing for tables that have no unlogged changes."""

    def unlogged_change(self, before: CatalogText, now: CatalogText) -> UnloggedChange | None:
        """What changed a table's rows between two texts of `contents`; None if nothing did."""

    def parse(self, text: str, table: Table, column: Column) -> pa.Scalar:
        """A value from the database's own text of it, as the stream would deliver it (masks apply)."""

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The table's present rows, typed exactly as the stream decodes them."""

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """Of the rows under `keys` those that exist now; may hold more rows than asked for."""

    def read_range(
        self, table: Table, columns: Sequence[str], low: str | None, high: str | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows whose first key column lies in (low, high], as the database compares them. A batch with rows that do
        not fit their types, where the selection sets these aside, marks them in a last column `UNDECODABLE` of
        `core.metadata`; a value that does not fit is null."""

    def bounds(self, table: Table, rows: int) -> list[str]:
        """Upper bounds that cut the table into ranges of about `rows` rows; empty for a small one."""

    def maximum(self, scan: Scan) -> Key | None:
        """The last key of a walk as it is now; None for a table without rows."""

    def boundaries(self, scan: Scan, low: Key | None, maximum: Key, rows: int, count: int) -> list[Key]:
        """Up to `count` keys that cut what lies above `low` into spans of about `rows` rows; the last one is `maximum`
        when the walk reaches it."""

    def estimate(self, scan: Scan) -> int:
        """About how many rows there are: from the statistics, without reading them; 0 when nobody knows."""

    def row_bytes(self, table: Table) -> int:
        """About how many bytes a row has, as the database stores it: from the statistics; 0 when nobody knows."""

    def walked(self, table: Table, surrogate: str = "") -> tuple[str, ...]:
        """The columns a table is walked by: the `surrogate` if named, else its key; none: by the place of its rows.
        A surrogate that does not exist, or a table that cannot be walked, is a `ConfigError`."""

    def export(self, scan: Scan) -> str:
        """Hold a snapshot of the table for chunks to share, and return its name. It lives until it is released, or
        this process ends."""

    def release(self, exports: Collection[str]) -> None:
        """Let go all exported snapshots but these."""

    def exported(self, name: str) -> bool: ...

    def horizon(self) -> Watermark:
        """What a chunk that is opened from now on sees at least."""

    def settled(self, xid: int) -> bool:
        """Whether every transaction that had begun before `xid` was handed out is over."""

    def next_xid(self) -> int:
        """The id that the next transaction will get."""

    def lag(self) -> Lag: ...

    def close(self) -> None: ...

    def document(self, position: int, xid: int, committed: int, note: str | None = None) -> dict[str, Any]:
        """The offset's keys as the users of this connector know them; `note` is that of the last transaction."""


@dataclass(frozen=True)
class Slice:
    """Part of a block in the journal: what a Spark partition reads."""

    path: str
    index: int
    table: Table | None
    first: int
    last: int
    """Row range [first, last) of the block."""
    low: int
    high: int
    """Only rows with low <= position < high count."""
    checksum: int
    bytes: int
    position: int = 0
    committed: int = 0
    """What the records do not say themselves, because they were laid down before their commit."""


class Journal(Protocol):
    """The universal transaction buffer: a durable cache of the database's log, addressed by its positions."""

    def open(self, start: int) -> int:
        """Make ready to serve everything from `start` on; returns where the tail must continue."""

    def append(self, portion: Portion) -> None: ...

    def end(self) -> int:
        """Everything before it is complete and readable."""

    def limit(self, start: int, events: int | None, bytes: int | None) -> int:
        """The furthest end of a batch from `start` within the limits; at least one transaction."""

    def plan(self, start: int, end: int) -> list[Slice]: ...

    def release(self, position: int) -> None:
        """Nothing before `position` is needed any more."""


class Keys(Protocol):
    """Keys of a table, be they more than memory holds."""

    @property
    def schema(self) -> pa.Schema: ...

    def portions(self) -> Iterator[pa.Table]:
        """All of them, as often as asked."""


@dataclass(frozen=True)
class TableChanges:
    """A batch's changes of one table: `rows` in log order, in the shape of `versions[-1]` or of an older version."""

    versions: tuple[Table, ...]
    """Every version met in the batch, oldest first; the target follows the last."""
    rows: Sequence[tuple[Table, pa.Table]]
    """Runs of rows with the version they were decoded under. Rows that were read (`r`) apply after the log's:
    each is what its row is when the batch ends."""
    snapshotting: bool = False
    """The table's snapshot was not complete when the batch began, or the log has not yet passed the moment when it was:
    a row that the target lacks may still exist."""
    keep: Keys | None = None
    """All keys that a finished snapshot has seen, or that changed since it began: other rows of the target are gone."""
    told: tuple[int, int] = (-1, -1)
    """Where the log speaks of the table last, with or without a row: a position, and the place in its transaction. What
    was read stands where the reading ended."""

    @property
    def table(self) -> Table:
        return self.versions[-1]


@dataclass(frozen=True)
class Batch:
    """What a sink applies once, however often it is handed over."""

    query: str
    id: int
    selection: Selection
    tables: Sequence[TableChanges]
    failures: pa.Table | None = None


@dataclass(frozen=True)
class FilledTarget:
    """A target table that has rows of the pipeline."""

    table: int
    """The source table, by its id."""
    name: str
    place: str
    """Its folder, below the sink's path."""
    identity: str = ""
    """The id that Delta gave this very table; empty for a folder of files."""
    deleted: str = ""
    """The column that marks deleted rows; empty where rows are deleted."""


class Sink(Protocol):
    """A target. `apply` is idempotent per (query, id): a batch that comes again changes nothing."""

    def apply(self, batch: Batch) -> None:
        """Raises `TableRefused` for one table that cannot be written, and `TargetLost` for one that was filled and is
        gone."""

    def find_lost(self, query: str) -> list[FilledTarget]:
        """The target tables that were filled and are gone. Raises `ConfigError` where the sink's settings do not fit
        one that is there."""


class Source(Protocol):
    """What a sink may ask of the source when the log cannot tell: the present values of some columns."""

    def read(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...

    def read_keys(self, table: Table, columns: Sequence[str], keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """Of the rows under `keys` those that exist now; may hold more rows than asked for."""

    def present(self, ids: Sequence[int]) -> list[Table]:
        """These tables as they are now; what is gone is left out."""

    def horizon(self) -> Watermark:
        """What is visible now: all that was read before has seen no more."""


@dataclass(frozen=True)
class Status:
    """What a running capture tells about itself, for status lines, metrics and `tidelog status`."""

    state: str
    """`starting`, `running`, `waiting` (the journal is full), `reconnecting`, `stopped` or `failed`."""
    position: int = 0
    """Captured up to here."""
    seen: int = 0
    """The log is known up to here, also where nothing captured happened."""
    acknowledged: int = 0
    """Delivered up to here."""
    lag_bytes: int = 0
    """Log that is not acknowledged yet."""
    kept_bytes: int = 0
    """Log that the server keeps for us."""
    safe_bytes: int | None = None
    """How much more it is willing to keep; None when it has no limit."""
    lag_ms: int = 0
    """Age of the oldest transaction that is captured and not delivered."""
    events: dict[str, int] = field(default_factory=dict)
    """Records captured since the start, by operation."""
    journal_bytes: int = 0
    updated_us: int = 0
    warning: str = ""
    unreachable_since_us: int = 0
    """Since when the database does not answer; 0 while it does. Until it answers again, the lag is not known."""
    waits_for: str = ""
    """What the capture waits for before it can read the log, such as the database or its replication slot; empty while
    it reads. Until then, the lag is not known."""


class ControlStore(Protocol):
    """Where control state rests. Any number of processes may use it at once; every call is one transaction.

    What does not exist is a `NotFound`; a writing that is based on something stale, or a name that is taken, is a
    `Conflict`; a store that cannot be reached is a `TransientError`.
    """

    # -- connectors

    def connectors(self) -> list[control.Connector]: ...

    def connector(self, name: str) -> control.Connector: ...

    def create(self, connector: control.Connector) -> control.Connector: ...

    def update(self, connector: control.Connector) -> control.Connector:
        """Replace config and target; `connector.version` is the one that was read."""

    def forget(self, name: str) -> None:
        """Remove the connector. Its offsets and its history stay: one that is created anew goes on from there."""

    # -- offsets

    def offsets(self, name: str) -> list[control.Kept]:
        """By partition; also of a name that is no connector here, such as a pipeline that ran on its own."""

    def mirror(self, name: str, partition: control.Partition, committed: control.Committed) -> None:
        """Repeat what the checkpoint has committed. An older batch of the same query, or an offset that lacks a change
        which was applied already, is a `Conflict`. A change that it contains (`tidelog_change`) counts as applied."""

    def change(self, change: control.Change, *, expected: int) -> control.Change:
        """Add an edit, which waits for the next start; `expected` is the `Kept.change` it is based on. `before` is
        filled in with what stands. Returns it with its id; ids grow."""

    def pending(self, name: str) -> list[control.Change]:
        """The edits that wait for the next start: the last of each partition."""

    def history(self, name: str, *, limit: int = 100, before: int | None = None) -> list[control.Change]:
        """The newest first."""

    # -- signals and notifications

    def tell(self, kind: str, told: control.Told) -> control.Told:
        """Keep a `signal` or a `notification`; one that is there already (connector, kind, id, type, at_us, data) is
        kept once."""

    def told(self, kind: str, name: str, *, after: int = 0, limit: int = 100) -> list[control.Told]:
        """The newest `limit` of those after the number `after`, oldest first."""

    def close(self) -> None: ...
