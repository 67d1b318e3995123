"""Which databases there are, under which names people know them, and whether their changes are captured yet."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.core.settings import nearest
from tidelog.errors import ConfigError

_JAVA = "io.debezium.connector."


@dataclass(frozen=True)
class Plugin:
    name: str
    """Of the folder, too."""
    title: str
    aliases: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    """What configurations of Kafka Connect name in `connector.class`."""
    captures: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases, *self.classes)

    @property
    def state(self) -> str:
        """What can be done with it, in one sentence."""
        return "Captures changes." if self.captures else "Its offsets can be managed; capture isn't there yet."


PLUGINS = (
    Plugin("postgres", "PostgreSQL", ("postgresql",), (f"{_JAVA}postgresql.PostgresConnector",), captures=True),
    Plugin("mysql", "MySQL", (), (f"{_JAVA}mysql.MySqlConnector",)),
    Plugin("mariadb", "MariaDB", (), (f"{_JAVA}mariadb.MariaDbConnector",)),
    Plugin("mongodb", "MongoDB", ("mongo",), (f"{_JAVA}mongodb.MongoDbConnector",)),
    Plugin("oracle", "Oracle", (), (f"{_JAVA}oracle.OracleConnector",), captures=True),
    Plugin(
        "iseries",
        "IBM i (iSeries)",
        ("ibmi", "as400", "db2as400"),
        (f"{_JAVA}db2as400.As400RpcConnector",),
        captures=True,
    ),
    Plugin("sqlserver", "SQL Server", ("mssql",), (f"{_JAVA}sqlserver.SqlServerConnector",)),
    Plugin("db2", "Db2", (), (f"{_JAVA}db2.Db2Connector",)),
    Plugin("vitess", "Vitess", (), (f"{_JAVA}vitess.VitessConnector",)),
    Plugin(
        "cassandra",
        "Cassandra",
        (),
        tuple(f"{_JAVA}cassandra.Cassandra{version}Connector" for version in (3, 4, 5)),
    ),
    Plugin("spanner", "Spanner", (), (f"{_JAVA}spanner.SpannerConnector",)),
)

_BY_NAME = {name.lower(): plugin for plugin in PLUGINS for name in plugin.names}


def plugin(name: str) -> Plugin:
    """By any of its names; capitals do not matter."""
    found = _BY_NAME.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise _unknown(name)
    return found


def capturing(name: str) -> Plugin:
    """One whose changes can be captured."""
    found = plugin(name)
    if not found.captures:
        able = ", ".join(p.name for p in PLUGINS if p.captures)
        raise ConfigError(
            f"The offsets of {found.title} can be managed, but capturing its changes isn't there yet.",
            hint=f"Changes are captured from: {able}.",
        )
    return found


def _unknown(name: str) -> ConfigError:
    short = [n for p in PLUGINS for n in (p.name, *p.aliases)]
    near = nearest(str(name).lower(), [*short, *(c for p in PLUGINS for c in p.classes)])
    hint = f"Did you mean {near!r}?" if near else f"Known are: {', '.join(sorted(short))}."
    return ConfigError(f"There is no connector {name!r}.", hint=hint)
