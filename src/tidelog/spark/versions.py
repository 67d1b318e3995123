"""The versions of Spark that tidelog runs on, and the package of Delta that fits each of them.

What was tested with which is in docs/guide/versions.md.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata, util
from pathlib import Path

from tidelog.errors import ConfigError

SUPPORTED = ("4.2", "4.3")
"""Spark 4.1 has no admission control for Python sources: `availableNow` would deliver one batch, which may be empty."""
REQUIREMENT = "pyspark>=4.2,<4.4"
DELTA_PACKAGES = {"4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
"""Delta is built for one minor version of Spark each. There is no release for Spark 4.3."""


def minor(version: str) -> str:
    """`4.2` of `4.2.0`, `4.2.1.dev0` or a vendor's `4.2.0-amzn-1`."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


def require_supported(version: str) -> None:
    if minor(version) not in SUPPORTED:
        raise ConfigError(
            f"tidelog runs on Spark {' and '.join(SUPPORTED)}, and this is Spark {version}.",
            hint=f"Run: pip install '{REQUIREMENT}'",
        )


def installed_version() -> str | None:
    """The version of the pyspark that an import would load, without importing it: that takes a second. None where it
    can't be told, such as pyspark in a zip file; then the session is asked once it is there."""
    if "pyspark" in sys.modules:
        return str(sys.modules["pyspark"].__version__)
    module = util.find_spec("pyspark")
    try:
        distribution = metadata.distribution("pyspark")
    except metadata.PackageNotFoundError:
        return None
    described = Path(str(distribution.locate_file("pyspark/__init__.py")))
    is_described = module is not None and module.origin is not None and Path(module.origin) == described
    return distribution.version if is_described else None
