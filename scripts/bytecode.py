"""Adds compiled modules to the archives of pyspark and py4j in .venv.

Spark's Python processes import pyspark from an archive that holds sources only, and Python never writes into one: each
process compiles them anew, which takes longer than all else that it does at its start.
"""

from __future__ import annotations

import marshal
import sys
import zipfile
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from pathlib import Path

_UNCHECKED_HASH = 1


def main() -> None:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        sys.exit("pyspark is not installed here")
    for archive in sorted((Path(pyspark.origin).parent / "python" / "lib").glob("*.zip")):
        if not is_compiled(archive):
            compile_archive(archive)


def is_compiled(archive: Path) -> bool:
    with zipfile.ZipFile(archive) as content:
        return any(name.endswith(".pyc") for name in content.namelist())


def compile_archive(archive: Path) -> None:
    """The new archive takes the old one's place when it is complete."""
    draft = archive.with_suffix(".draft")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(draft, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            new.writestr(entry, content)
            if entry.filename.endswith(".py"):
                new.writestr(f"{entry.filename}c", compiled(content, f"{archive}/{entry.filename}"))
    draft.replace(archive)


def compiled(source: bytes, name: str) -> bytes:
    """A compiled module as Python stores it (PEP 552), never compared with its source again."""
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little") + source_hash(source) + marshal.dumps(code)


if __name__ == "__main__":
    main()
