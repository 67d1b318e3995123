"""Table properties without an upgrade of the protocol.

Where a table's features are listed (timestamps without a zone need that), delta-rs adds `variantType` and others to the
list with any property that it sets, and readers that don't know them refuse the table. So the commit is written here:
metadata alone. It needs a store that creates a file only if there is none, which Python has for local folders.
"""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tidelog.errors import TransientError

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
"""What link() answers where there are no hard links; FAT and most FUSE file systems say EPERM or ENOSYS."""
_FEATURES_LISTED = 7
"""The writer version from which on a protocol lists its features."""
_UNCONCERNED = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "variantType",
}
"""Features that ask nothing of a commit without files. Others may: commit timestamps, catalogs."""


def commit_properties(table: Any, properties: Mapping[str, str]) -> bool:
    """Whether the properties were committed here; otherwise delta-rs has to set them."""
    log = local_log(table.table_uri)
    if log is None or not _is_affected(table.protocol()):
        return False
    table.update_incremental()
    actions = (_commit_info(properties), _metadata(table, properties))
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    if not _create(log / commit_name(table.version() + 1), text):
        return False
    table.update_incremental()
    return True


def _is_affected(protocol: Any) -> bool:
    return protocol.min_writer_version >= _FEATURES_LISTED and set(protocol.writer_features or ()) <= _UNCONCERNED


def local_log(uri: str) -> Path | None:
    """Where the log of a table in a local folder is."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else uri) / "_delta_log"


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def _commit_info(properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        "commitInfo": {
            "timestamp": int(time.time() * 1000),
            "operation": "SET TBLPROPERTIES",
            "operationParameters": {"properties": json.dumps(dict(properties))},
            "engineInfo": "tidelog",
        }
    }


def _metadata(table: Any, properties: Mapping[str, str]) -> dict[str, Any]:
    now = table.metadata()
    return {
        "metaData": {
            "id": now.id,
            "name": now.name,
            "description": now.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": list(now.partition_columns),
            "createdTime": now.created_time,
            "configuration": {**now.configuration, **properties},
        }
    }


def _create(file: Path, text: str) -> bool:
    """Whole, and only if no other writer has committed this version: a link never replaces a file. False where the
    file system has no links, as many network file systems have none."""
    draft = file.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with draft.open("w", encoding="utf-8") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        os.link(draft, file)
    except FileExistsError as exc:
        raise TransientError(f"Another writer committed to the Delta table {file.parent.parent}.") from exc
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
