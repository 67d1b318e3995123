"""What an error of the server means: each becomes one of ours, by its number, with what to do.

Time cures most of them (`TransientError`, the reader starts again); some say that the mining session has to be begun
anew, or that its result ends here, and have names of their own for `session` to catch; a setting or a grant cures
others. No message is built from the connection's options, so none carries a password.
"""

from __future__ import annotations

import re

from tidelog.errors import ConfigError, DatabaseAway, TidelogError, TransientError


class LogMissing(TransientError):
    """The mining session lacks a log file, or can't open one: gather them again."""


class LogReused(TransientError):
    """A log file holds another sequence than expected: it was reused since it was added. Reading: the result ends
    here, and the session is begun anew."""


class SessionGone(TransientError):
    """There is no mining session (any more)."""


class MiningFailed(TransientError):
    """LogMiner itself has failed: another session may do better."""


class RangeInvalid(TransientError):
    """The SCN range lies outside of what the log holds yet."""


class DictionaryMissing(TransientError):
    """The log files hold no complete dictionary."""


class ScnUnknown(TransientError):
    """Nobody knows the time of this SCN, or the SCN of this time, any more."""


class SnapshotTooOld(TransientError):
    """The database no longer has the undo to read a table as it was."""


class ConnectionLost(DatabaseAway):
    """The connection is of no use any more."""


_AGAIN = "tidelog gathers the log files again and goes on."
_NET = "Check that database and listener run; tidelog connects again by itself."
_UNDO = "The chunk is read again; raise UNDO_RETENTION if this comes often."

_TIME_CURES: dict[type[TransientError], dict[int, str]] = {
    LogMissing: dict.fromkeys((308, 1284, 1285, 1289, 1291, 1293, 19625, 27037, 27041, 27046), _AGAIN),
    LogReused: dict.fromkeys((310, 334), _AGAIN),
    SessionGone: dict.fromkeys((1292, 1306, 1307), "tidelog begins a new mining session."),
    MiningFailed: {1280: "tidelog begins a new mining session. The server's alert log says more."},
    RangeInvalid: {1281: "tidelog waits until the log has come further."},
    DictionaryMissing: dict.fromkeys((1368, 1371), "tidelog builds a dictionary in the log."),
    ScnUnknown: dict.fromkeys((8180, 8181, 8186), "Neither is needed to go on."),
    SnapshotTooOld: dict.fromkeys((1555, 1466, 8176, 22924, 30052), _UNDO),
    ConnectionLost: dict.fromkeys(
        (28, 603, 1012, 1033, 1034, 1041, 1089, 1090, 1092, 1109, 2396, 2399, 3113, 3114, 3135, 12150, 12152, 12153,
         12154, 12157, 12161, 12170, 12505, 12514, 12516, 12518, 12519, 12520, 12521, 12523, 12526, 12528, 12532, 12535,
         12537, 12541, 12543, 12545, 12547, 12560, 12570, 12571, 12606, 12608, 12609, 25401, 25402, 25408, 25409),
        _NET,
    ),
    TransientError: dict.fromkeys(
        (18, 20, 51, 54, 60, 600, 604, 1013, 1327, 1332, 1333, 4021, 4030, 4031, 4036, 4068, 7445, 8103, 10387, 12751),
        "tidelog tries again.",
    ),
}  # fmt: skip

_SETTINGS_CURE = {
    1017: "Check database.user and database.password.",
    1045: "Run: GRANT CREATE SESSION TO the user.",
    28000: "Unlock the account: ALTER USER … ACCOUNT UNLOCK.",
    28001: "Give the user a new password, and put it into database.password.",
    1031: "Grant the user what it lacks; `tidelog check` prints the SQL.",
    942: "Grant the user what it lacks; `tidelog check` prints the SQL.",
    6550: "Run: GRANT EXECUTE ON DBMS_LOGMNR TO the user; `tidelog check` prints all grants.",
    1325: "Switch the mounted database to ARCHIVELOG mode: ALTER DATABASE ARCHIVELOG.",
    1354: "Run: ALTER DATABASE ADD SUPPLEMENTAL LOG DATA.",
    65011: "Check database.pdb.name.",
    65040: "Connect to the root of the container database: database.dbname.",
    65162: "Connect with a common user (c##…), or give the user a new password.",
    1295: "The log files are another database's: check archive.destination.name.",
    1370: "Take a new snapshot of the tables.",
}
_SLOW = "Raise database.query.timeout.ms if the server needs more time for its log files; tidelog tries again."
_DRIVER_LOST = {**dict.fromkeys((1001, 4011, 4027, 6000, 6001, 6002, 6003, 6005), _NET), 4024: _SLOW}
"""Numbers of the driver's own errors (DPY) that mean that there is no connection any more."""
UNREACHABLE = "Check database.hostname, database.port and database.dbname, and that the listener runs."
_NUMBERED = re.compile(r"(ORA|DPY|DPI|PLS)-(\d{3,5})(?!\d)")


def numbers(text: str) -> list[tuple[str, int]]:
    """The errors that a message tells of, the outermost first: `[("ORA", 1291)]`."""
    return [(kind, int(number)) for kind, number in _NUMBERED.findall(text)]


def classify(where: str, text: str, *, operational: bool = False) -> TidelogError:
    """Our error for what the driver says; `where` names the database, `operational` what the driver itself takes to be
    no fault of a statement."""
    found = numbers(text)
    said = f"Oracle at {where} says: {reason(text)}."
    oracle = [number for kind, number in found if kind == "ORA"]
    for number in oracle:  # the first that we know says most: 604 and 6512 only tell that there was another one
        if number in _SETTINGS_CURE:
            return ConfigError(said, hint=_SETTINGS_CURE[number])
        for kind, hints in _TIME_CURES.items():
            if number in hints and (number != 604 or number == oracle[-1]):
                return kind(said, hint=hints[number])
    for kind_of, number in found:
        if kind_of == "DPY" and number in _DRIVER_LOST:
            return ConnectionLost(said, hint=_DRIVER_LOST[number])
    if operational:
        return TransientError(said, hint=UNREACHABLE)
    return ConfigError(f"Oracle refused a statement: {reason(text)}.", hint="`tidelog check` looks for causes.")


def reason(text: str) -> str:
    """The first line that tells more than where it happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not re.match(r"ORA-(00604|06512)|Help: |https?://", line)]
    return (telling or lines or ["connection lost"])[0].rstrip(".")
