"""Epochs of Vitess shards: they rise when the hosts of a GTID change so that its rank may fall.

With epoch and rank together, transactions of a shard are ordered. A shard that was split or merged begins one epoch
after the shards whose range it overlaps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.connectors.vitess import gtid, vgtid
from tidelog.connectors.vitess.vgtid import Vgtid
from tidelog.core.offsets import inner
from tidelog.core.offsets.fields import clipped, expected
from tidelog.errors import ConfigError

Epochs = Mapping[str, int]

_SHOWN = "the text of a JSON object of shards and epochs"
_HINT = 'Write it like {"-80":2,"80-":3}.'


def following(epoch: int, previous: str, current: str) -> int:
    """The epoch of a shard's GTID, from the one before."""
    if current in gtid.OVERRIDES and previous not in gtid.OVERRIDES:
        raise ConfigError(f"After a real GTID came {current!r}, which is none.", hint="Start the shard's stream anew.")
    if previous in gtid.OVERRIDES:
        return epoch if current in gtid.OVERRIDES else epoch + 1
    return epoch if gtid.parse(current).has_hosts_of(gtid.parse(previous)) else epoch + 1


def of_shards(epochs: Epochs, previous: str | None, current: str, *, inherit: bool = False) -> dict[str, int]:
    """The epochs of all shards after a transaction. A new shard begins at 0, or after those that it `inherit`s from."""
    if previous is None:
        raise ConfigError("Without the vgtid before it, no epoch can be told.", hint="Give the previous vgtid.")
    before = vgtid.parse(previous)
    found = dict(epochs)
    for shard in vgtid.parse(current).shards:
        known = before.shard(shard.shard)
        if known is not None:
            found[shard.shard] = following(_of(epochs, shard.shard, before), known.gtid, shard.gtid)
        else:
            found[shard.shard] = inherited(shard.shard, epochs) if inherit else 0
    return found


def inherited(shard: str, epochs: Epochs) -> int:
    """One more than the highest epoch of the shards that overlap; 0 without any."""
    low, high = _range(shard)
    ranges = ((_range(name), epoch) for name, epoch in epochs.items())
    parents = [epoch for (lower, upper), epoch in ranges if _below(low, upper) and _below(lower, high)]
    return max(parents, default=-1) + 1


def normal(text: str) -> str:
    """`transaction_epoch`: the epochs as the text of a JSON object."""
    found = inner.loads(text, _SHOWN, hint=_HINT)
    if not isinstance(found, dict) or not all(type(n) is int and n >= 0 for n in found.values()):
        raise expected(_SHOWN, text, hint=_HINT)
    return inner.dumps(found, sort=True)


def _of(epochs: Epochs, shard: str, before: Vgtid) -> int:
    if shard not in epochs:
        raise ConfigError(
            f"The shard {shard!r} was in the previous vgtid ({len(before.shards)} shards), but has no epoch.",
            hint="Give its epoch in transaction_epoch.",
        )
    return epochs[shard]


def _below(low: str, high: str | None) -> bool:
    return high is None or low < high


def _range(shard: str) -> tuple[str, str | None]:
    """`40-80` as bounds that compare as texts: zeros at the end say nothing. A name without a dash has all."""
    if "-" not in shard:
        return "", None
    found = re.fullmatch(r"([0-9a-f]*)-([0-9a-f]*)", shard.lower())
    low, high = (found[1].rstrip("0"), found[2].rstrip("0") if found[2] else None) if found else ("", "")
    if not _below(low, high):
        raise ConfigError(f"{clipped(shard)!r} is no range of a shard.", hint="Write it like -80, 40-80 or 80-.")
    return low, high
