"""Put bytecode beside the sources in Spark's zip files.

Each Python process that Spark starts imports pyspark from `pyspark.zip`, and Python never writes bytecode into a zip
file: it would compile the sources each time, for 0.35 CPU-s.
"""

from __future__ import annotations

import importlib._bootstrap_external as bootstrap
import importlib.util
import zipfile
from pathlib import Path


def compile_zip(path: Path) -> None:
    unfinished = path.with_suffix(".new")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(unfinished, "w") as new:
        names = set(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content)
            if name.endswith(".py") and f"{name}c" not in names:
                code = compile(content, f"{path}/{name}", "exec", dont_inherit=True)
                # valid for as long as it lies beside its source: not compared with the time of the source's entry
                bytecode = bootstrap._code_to_hash_pyc(code, importlib.util.source_hash(content), False)  # type: ignore[attr-defined]
                new.writestr(f"{name}c", bytecode)
    unfinished.replace(path)


if __name__ == "__main__":
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        for path in (Path(spec.origin).parent / "python/lib").glob("*.zip"):
            compile_zip(path)
