"""The texts of `Connector.contents` that offsets refer to by their digests.

A text names every column of a table, and an offset that holds the texts of a thousand tables would cost more than its
batch. So an offset holds digests, and a file of the state folder holds the texts. If the file is lost or damaged, a
table whose catalog entry changed meanwhile is read again without looking at what changed; nothing else happens.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import cached_property
from hashlib import blake2s
from pathlib import Path

from tidelog.engine.state_file import read_json, write_json
from tidelog.errors import CorruptState

_LOG = logging.getLogger("tidelog.snapshots")


class CatalogTexts:
    """Used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, texts: Mapping[int, str], earlier: Collection[str]) -> dict[int, str]:
        """Stores the texts and returns their digests. Those of `earlier` digests stay: an offset that is not committed
        yet may be planned again."""
        digests = {id: _digest(text) for id, text in texts.items()}
        wanted = {digest: text for digest in earlier if (text := self._known.get(digest)) is not None}
        wanted.update((digests[id], text) for id, text in texts.items())
        if not wanted.keys() <= self._known.keys():
            write_json(self._path, wanted)
            self._known = wanted
        return digests

    def find(self, digest: str) -> str | None:
        """The text of a digest; None if it is lost. Offsets of earlier versions hold the text itself."""
        return digest if digest.startswith("{") else self._known.get(digest)

    @cached_property
    def _known(self) -> dict[str, str]:
        try:
            return read_json(self._path, "It is written again.") or {}
        except CorruptState as exc:
            _LOG.warning("%s Tables whose catalog entries changed since the last batch are read again.", exc.message)
            return {}


def _digest(text: str) -> str:
    return blake2s(text.encode(), digest_size=9).hexdigest()
