#!/usr/bin/env bash
# Install the servers of the tests that no Python package brings: PostgreSQL 15 from Debian.
set -euo pipefail
[ -x /usr/lib/postgresql/15/bin/postgres ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "installing postgresql-15 for the tests …"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql-15; } >/dev/null ||
    echo "postgresql-15 could not be installed: its tests are skipped." >&2
fi
