"""Which queries had written a pipeline's tables into the target when the pipeline first started.

The pipeline takes over the tables of these queries: a start that finds such tables begins only if a person has chosen
so. A table of any other query belongs to another pipeline that writes to the same place, and their rows would mix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidelog.engine.home import Home
from tidelog.engine.state_file import read_json, write_json

_REMEDY = (
    "If no other pipeline uses the sink's path, delete it: tables in the target are then taken over, whichever query "
    "has written them."
)


def note_former_writers(home: Home, find_writers: Callable[[], Collection[str] | None], *, fresh: bool = False) -> None:
    """Called before a first start is accepted. A start that died before its first batch has noted them already, unless
    it is `fresh` by somebody's choice. `find_writers` returns None where any query's tables may be taken over."""
    is_noted = home.first_start.exists() and home.former_writers.exists()
    if home.has_begun or (is_noted and not fresh):
        return
    writers = find_writers()
    if writers is None:
        home.former_writers.unlink(missing_ok=True)
    else:
        write_json(home.former_writers, {"queries": sorted(writers)})


def read_former_writers(home: Home) -> frozenset[str] | None:
    """None where they are not known."""
    content = read_json(home.former_writers, _REMEDY)
    return None if content is None else frozenset(content["queries"])
