"""`vgtid`: where the stream stands in each shard of a keyspace, as the text of a JSON list.

    [{"keyspace":"shop","shard":"-80","gtid":"MySQL56/…:1-1513","table_p_ks":[]}]

`table_p_ks` tells how far a copy of the tables has come; it is empty once they are copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.connectors.vitess import gtid
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets import inner
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.fields import came, clipped
from tidelog.core.settings import nearest
from tidelog.errors import ConfigError

_HINT = 'Write it like [{"keyspace":"shop","shard":"-80","gtid":"MySQL56/uuid:1-1513","table_p_ks":[]}].'
_MEMBERS = ("keyspace", "shard", "gtid", "table_p_ks")


@dataclass(frozen=True)
class LastKey:
    """How far a table was copied."""

    table: str
    fields: tuple[str, ...]
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Shard:
    keyspace: str
    shard: str
    gtid: str
    keys: tuple[LastKey, ...] = ()

    def to_json(self) -> dict[str, Any]:
        keys = [dict(key.raw) for key in self.keys]
        return {"keyspace": self.keyspace, "shard": self.shard, "gtid": self.gtid, "table_p_ks": keys}

    @property
    def copies(self) -> bool:
        """Whether tables are copied when the stream starts here."""
        return self.gtid == gtid.COPY or bool(self.keys)


@dataclass(frozen=True)
class Vgtid:
    shards: tuple[Shard, ...]

    def __str__(self) -> str:
        return inner.dumps([shard.to_json() for shard in self.shards])

    def shard(self, name: str) -> Shard | None:
        return next((shard for shard in self.shards if shard.shard == name), None)

    def local(self, name: str) -> Vgtid:
        """Of one shard alone."""
        return Vgtid(tuple(shard for shard in self.shards if shard.shard == name))

    @property
    def copies(self) -> bool:
        return any(shard.copies for shard in self.shards)

    def order(self, other: Vgtid) -> Order:
        """Shard by shard; after a reshard nobody can tell."""
        these, those = ({(s.keyspace, s.shard): s.gtid for s in v.shards} for v in (self, other))
        if these.keys() != those.keys():
            return Order.UNRELATED
        return orders.both(gtid.order(mark, those[name]) for name, mark in these.items())


def parse(text: str) -> Vgtid:
    return of(inner.loads(text, "the text of a JSON list of shards", hint=_HINT))


def of(listed: Any) -> Vgtid:
    """From the list itself."""
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"The vgtid is a list of shards, but {_came(listed)} came.", hint=_HINT)
    found = tuple(_shard(entry) for entry in listed)
    if len({(shard.keyspace, shard.shard) for shard in found}) < len(found):
        raise ConfigError("The vgtid names a shard twice.", hint="Give each shard once.")
    return Vgtid(found)


def normal(text: str) -> str:
    return str(parse(text))


def last_keys(listed: Any) -> tuple[LastKey, ...]:
    """`table_p_ks` of a shard."""
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise ConfigError(f"table_p_ks is a list, but {came(listed)} came.", hint="Write [] when nothing is copied.")
    return tuple(_last_key(entry) for entry in listed)


def _came(listed: Any) -> str:
    return "an empty one" if isinstance(listed, list) else came(listed)


def _shard(entry: Any) -> Shard:
    if not isinstance(entry, dict):
        raise ConfigError(f"A shard of the vgtid is an object, but {came(entry)} came.", hint=_HINT)
    for name in entry:
        if name not in _MEMBERS:
            near = nearest(name, _MEMBERS)
            raise ConfigError(
                f"A shard of the vgtid has no {clipped(name)!r}.", hint=f"Did you mean {near!r}?" if near else _HINT
            )
    keyspace, shard, mark = (_text(entry, name) for name in _MEMBERS[:3])
    return Shard(keyspace, shard, gtid.check(mark), last_keys(entry.get("table_p_ks")))


def _text(entry: Mapping[str, Any], name: str) -> str:
    found = entry.get(name)
    if not isinstance(found, str) or (name == "keyspace" and not found):
        said = f"{came(found)} came" if name in entry else "it is missing"
        raise ConfigError(f"A shard of the vgtid has a text as its {name}, but {said}.", hint=_HINT)
    return found


def _last_key(entry: Any) -> LastKey:
    match entry:
        case {"table_name": str(table), "lastpk": {"fields": list(fields), "rows": list()}}:
            names = tuple(str(f.get("name")) if isinstance(f, dict) else "" for f in fields)
            if all(names):
                return LastKey(table, names, entry)
        case {"table_name": str(table), "lastpk": None}:
            return LastKey(table, (), entry)
    raise ConfigError(
        "An entry of table_p_ks has no table_name with its lastpk of fields and rows.",
        hint="Leave table_p_ks as the connector wrote it, or write [] to copy nothing.",
    )
