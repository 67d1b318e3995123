"""Selections that batches were planned with, kept beside the journal.

For a user's own sink a replay decodes under its own; a pipeline decodes what was never committed under today's.
"""

from __future__ import annotations

from tidelog.errors import CorruptState
from tidelog.journal.files import Files
from tidelog.model.selection import Selection

_FOLDER = "selections"


class Selections:
    def __init__(self, files: Files) -> None:
        self._files = files

    def keep(self, selection: Selection) -> None:
        """Remember a selection for as long as the journal lives."""
        name = f"{_FOLDER}/{selection.fingerprint}.json"
        if self._files.read(name) is None:
            self._files.write(name, selection.to_json().encode(), durable=True)

    def of(self, fingerprint: str, current: Selection) -> Selection:
        found = self._read(fingerprint, current)
        if found is None:
            raise CorruptState(
                f"The batch was planned under the selection {fingerprint}, which the journal does not have any more.",
                hint="Start once with the filters that were in force before, then change them.",
            )
        return found

    def find(self, fingerprint: str, current: Selection) -> Selection:
        """The selection of this fingerprint, or the current one if it is no longer known."""
        return self._read(fingerprint, current) or current

    def _read(self, fingerprint: str, current: Selection) -> Selection | None:
        if fingerprint == current.fingerprint:
            return current
        text = self._files.read(f"{_FOLDER}/{fingerprint}.json")
        return Selection.from_json(text.decode()) if text is not None else None
