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
from typing import Any

from tidelog.contracts import CatalogText
from tidelog.engine.state_file import read_json, write_json
from tidelog.errors import CorruptState

_LOG = logging.getLogger("tidelog.snapshots")


class CatalogTexts:
    """Used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, texts: Mapping[int, CatalogText], earlier: Collection[str]) -> dict[int, str]:
        """Stores the texts and returns their digests. Those of `earlier` digests stay: an offset that is not committed
        yet may be planned again."""
        digests = {id: _digest(text) for id, text in texts.items()}
        wanted = {digest: text for digest in earlier if (text := self._known.get(digest)) is not None}
        wanted.update((digests[id], text) for id, text in texts.items())
        if not wanted.keys() <= self._known.keys():
            write_json(self._path, {digest: [text.text, text.moment] for digest, text in wanted.items()})
            self._known = wanted
        return digests

    def find(self, digest: str) -> CatalogText | None:
        """The text of a digest; None if it is lost. Offsets of earlier versions hold the text itself."""
        return CatalogText(digest) if digest.startswith("{") else self._known.get(digest)

    @cached_property
    def _known(self) -> dict[str, CatalogText]:
        try:
            found = read_json(self._path, "It is written again.") or {}
        except CorruptState as exc:
            _LOG.warning("%s Tables whose catalog entries changed since the last batch are read again.", exc.message)
            return {}
        return {digest: _text(stored) for digest, stored in found.items()}


def _text(stored: Any) -> CatalogText:
    """Earlier versions stored the text alone."""
    return CatalogText(stored) if isinstance(stored, str) else CatalogText(*stored)


def _digest(text: CatalogText) -> str:
    """Not of the moment: a table that stays as it is has the same digest at every look."""
    return blake2s(text.text.encode(), digest_size=9).hexdigest()
