"""The settings of the Oracle connector, under the names that Debezium's users know."""

from __future__ import annotations

from tidelog.core import selecting
from tidelog.core.settings import Setting, boolean, count, port
from tidelog.core.snapshot import settings as snapshots

BUFFERED, UNBUFFERED = "logminer", "logminer_unbuffered"
STRATEGIES = ("online_catalog", "hybrid", "redo_log_catalog", "dictionary_from_file")


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names, in their order."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


CONNECTION = (
    Setting("database.hostname", "Host name or address of the server.", "localhost"),
    Setting("database.port", "Port of its listener.", "1521", port),
    Setting("database.user", "User that mines the log: in a container database a common one (c##…).", None),
    Setting(
        "database.password", "Its password; better written as ${ORACLE_PASSWORD} or ${file:/path}.", "", secret=True
    ),
    Setting("database.dbname", "Service name of the database; in a container database that of the root.", None),
    Setting("database.pdb.name", "Pluggable database to capture; empty for a database without containers.", ""),
    Setting(
        "database.url",
        "Connect descriptor or Easy Connect text instead of host, port and service; without user and password.",
        "",
    ),
    Setting("database.connect.timeout.ms", "How long one attempt to connect may take.", "10000", count),
    Setting(
        "database.query.timeout.ms", "How long one round trip of a query may take; 0 for any time.", "600000", count
    ),
    Setting("query.fetch.size", "Rows that are fetched in one round trip.", "10000", count),
    Setting(
        "database.connection.adapter",
        "logminer reads changes as they are made and keeps open transactions in the buffer; logminer_unbuffered lets "
        "the database gather transactions and reads committed ones only.",
        BUFFERED,
        choices=(BUFFERED, UNBUFFERED),
    ),
)

MINING = (
    Setting(
        "log.mining.strategy",
        "Where names of tables and columns come from: the present catalog (online_catalog); the same, and by column "
        "numbers where the catalog has moved on (hybrid); a copy in the log (redo_log_catalog); or a file.",
        "online_catalog",
        choices=STRATEGIES,
    ),
    Setting("log.mining.path.dictionary", "The server's file with the dictionary, for dictionary_from_file.", ""),
    Setting(
        "log.mining.query.filter.mode",
        "What the database filters by tables: nothing (none), by a list of plain names (in), or by the regular "
        "expressions, if Oracle understands them too (regex). tidelog filters in any case.",
        "none",
        choices=("none", "in", "regex"),
    ),
    Setting(
        "log.mining.log.count.min",
        "Log files of each redo thread that one mining session takes at least, counted in sizes of an online log; more "
        "are added one by one while nothing ends in them. 0, and with redo_log_catalog: all there are.",
        "0",
        count,
    ),
    Setting(
        "log.mining.session.max.ms",
        "A mining session is begun anew after this time; 0: at log switches only.",
        "0",
        count,
    ),
    Setting(
        "log.mining.restart.connection",
        "Whether the connection is renewed as well, to free its memory.",
        "false",
        boolean,
    ),
    Setting("log.mining.sleep.time.default.ms", "Pause after a pass that found something.", "1000", count),
    Setting("log.mining.sleep.time.min.ms", "The shortest pause.", "0", count),
    Setting("log.mining.sleep.time.max.ms", "The longest pause.", "3000", count),
    Setting(
        "log.mining.sleep.time.increment.ms",
        "How much longer the pause becomes each time nothing is found.",
        "200",
        count,
    ),
    Setting("log.mining.log.query.max.retries", "How often missing log files are looked for again.", "5", count),
    Setting(
        "log.mining.log.backoff.initial.delay.ms", "Pause before they are looked for again; it doubles.", "1000", count
    ),
    Setting("log.mining.log.backoff.max.delay.ms", "The longest such pause.", "60000", count),
    Setting(
        "log.mining.max.scn.deviation.ms",
        "Stay behind the present by this time, where parts of a distributed database lag.",
        "0",
        count,
    ),
    Setting(
        "log.mining.redo.thread.scn.adjustment",
        "How many SCNs to stay behind what redo threads have written: LogMiner looks one further than asked.",
        "1",
        count,
    ),
    Setting(
        "archive.destination.name",
        "Archive destinations to read, the preferred first, such as LOG_ARCHIVE_DEST_1. Default: all local ones.",
        "",
        names,
    ),
    Setting("archive.log.hours", "Read only archived logs that are younger; 0: any age.", "0", count),
    Setting(
        "archive.log.only.mode",
        "Read archived logs alone, never online ones: changes come with the archive.",
        "false",
        boolean,
    ),
    Setting(
        "archive.log.only.scn.poll.interval.ms",
        "How often a new archived log is looked for in that mode.",
        "10000",
        count,
    ),
    Setting("log.mining.username.include.list", "Capture only what these users changed.", "", names),
    Setting("log.mining.username.exclude.list", "Leave out what these users changed.", "", names),
    Setting("log.mining.clientid.include.list", "Capture only what sessions with these client ids changed.", "", names),
    Setting("log.mining.clientid.exclude.list", "Leave out what sessions with these client ids changed.", "", names),
    Setting(
        "log.mining.low.watermark.interval.ms",
        "Unbuffered: how often the oldest open transaction is looked for.",
        "10000",
        count,
    ),
    Setting(
        "log.mining.transaction.retention.ms",
        "Buffered: a transaction that stays open for longer is given up, with a notification; 0: never.",
        "0",
        count,
    ),
    Setting(
        "log.mining.buffer.transaction.events.threshold",
        "Buffered: a transaction with more events is given up, with a notification; 0: never.",
        "0",
        count,
    ),
    Setting("log.mining.include.redo.sql", "Put the redo SQL into the events' source.", "false", boolean),
    Setting("log.mining.track.start.timestamp", "Read when transactions began.", "true", boolean),
    Setting("log.mining.track.commit.timestamp", "Read when transactions were committed.", "true", boolean),
    Setting("log.mining.track.rs.id", "Read the places of changes in the log files.", "true", boolean),
    Setting("log.mining.track.username", "Read who made a change.", "true", boolean),
    Setting("log.mining.track.client.id", "Read the client ids of sessions.", "true", boolean),
    Setting("lob.enabled", "Capture LOB, XML and 32K columns; costs a second look at the log.", "false", boolean),
)

SETTINGS = (
    *CONNECTION,
    *MINING,
    *selecting.SETTINGS,
    Setting("heartbeat.interval.ms", "Deliver a heartbeat this often; 0 for none.", "0", count),
    *snapshots.SETTINGS,
    Setting("snapshot.database.user", "User that reads the tables: SELECT and FLASHBACK. Default: database.user.", ""),
    Setting("snapshot.database.password", "Its password. Default: database.password.", "", secret=True),
)
