#!/usr/bin/env bash
# Create .venv and install tidelog with the given extras, at the versions of requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=$1
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "tidelog needs Python 3.11 or newer; $python is $("$python" --version). Set PYTHON=/path/to/python3.11." >&2
  exit 1
}
[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "installing tidelog[$extras] into .venv …"
if .venv/bin/python -m pip install --quiet uv 2>/dev/null &&
  .venv/bin/uv pip install --quiet --python .venv/bin/python --constraint requirements.lock --editable ".[$extras]"; then
  exit 0
fi
.venv/bin/python -m pip install --quiet --constraint requirements.lock --editable ".[$extras]"
