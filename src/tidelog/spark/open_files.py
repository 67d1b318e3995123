"""The limit of open files, which Spark inherits.

The JVM keeps each of Spark's jars open: a run with one query was measured at 370 files. Below that, Spark's launcher or
a class that is loaded later fails with a text that speaks of Java.
"""

from __future__ import annotations

import logging
import resource

from tidelog.errors import ConfigError

_LOG = logging.getLogger("tidelog")
_REQUIRED = 512
_FEW = 1024
"""Several connectors in one service, or more packages of Spark, may come to this number."""
_WANTED = 65_536
_SMALLER = (32_768, 16_384, 10_240, 4096, 2048, _FEW, _REQUIRED)
"""For a system that refuses more; 10,240 is usual on macOS."""
_REMEDY = (
    "Raise it before the start: `ulimit -n 4096`, for systemd LimitNOFILE=4096 in the unit, for a container --ulimit "
    "nofile=4096."
)


def require_enough() -> None:
    """Raises the limit of this process as far as it may; refuses one with which Spark cannot work."""
    limit = _raise_limit()
    if limit < _REQUIRED:
        raise ConfigError(
            f"This process may open {limit} files at most, and Spark needs {_REQUIRED} or more.", hint=_REMEDY
        )


def warn_if_few() -> None:
    """Warns of a limit that is enough for little more than Spark itself."""
    limit = _raise_limit()
    if limit < _FEW:
        _LOG.warning("This process may open %d files at most, which several queries may need. %s", limit, _REMEDY)


def _raise_limit() -> float:
    """The soft limit, raised towards the hard one, which any process may do."""
    soft, hard = (_number(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    for wanted in (min(hard, _WANTED), *_SMALLER):
        if soft < wanted <= hard and _set_soft(int(wanted)):
            break
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _set_soft(limit: int) -> bool:
    """Whether the system allows this limit: it may be less than the hard one, as on macOS (kern.maxfilesperproc)."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    except (OSError, ValueError) as exc:
        _LOG.debug("The system refuses a limit of %d open files: %s", limit, exc)
        return False
    return True


def _number(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit
