#!/usr/bin/env bash
# Resolve all extras into requirements.lock. Spark is pinned: it has to fit the Delta jars.
set -euo pipefail
cd "$(dirname "$0")/.."
printf 'pyspark==4.2.0\n' >.venv/pins.txt
.venv/bin/uv pip compile pyproject.toml --all-extras --universal --quiet --no-header --no-annotate \
  --no-emit-index-url --no-emit-find-links --constraint .venv/pins.txt --output-file requirements.lock
