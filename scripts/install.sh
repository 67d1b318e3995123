#!/usr/bin/env bash
# Create .venv and install tidelog with the given extras, at the versions of requirements.lock; SPARK=4.3.0 takes another
# Spark than the locked one.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=$1
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "tidelog needs Python 3.11 or newer; $python is $("$python" --version). Set PYTHON=/path/to/python3.11." >&2
  exit 1
}
[ -x .venv/bin/python ] || "$python" -m venv .venv
lock=requirements.lock
if [ -n "${SPARK:-}" ]; then
  lock=.venv/requirements.lock
  sed "s/^pyspark==.*/pyspark==$SPARK/" requirements.lock >"$lock"
fi
[ "$(cat .venv/spark.version 2>/dev/null)" = "${SPARK:-locked}" ] || rm -f .venv/spark.jsa # the classes are others
echo "${SPARK:-locked}" >.venv/spark.version
echo "installing tidelog[$extras] into .venv …"
if .venv/bin/python -m pip install --quiet uv 2>/dev/null &&
  .venv/bin/uv pip install --quiet --python .venv/bin/python --constraint "$lock" --editable ".[$extras]"; then
  :
else
  .venv/bin/python -m pip install --quiet --constraint "$lock" --editable ".[$extras]"
fi
.venv/bin/python scripts/compile_spark.py
