#!/usr/bin/env bash
# Install what the tests need and no Python package brings: PostgreSQL 15 and Chromium from Debian, Kafka's jars, and
# an archive of the classes that Spark loads, with which its JVM starts in half the time. All at the same time: most of
# it is waiting for downloads. With names, only those: `scripts/servers.sh chromium`.
set -euo pipefail
cd "$(dirname "$0")/.."

postgres() {
  [ -x /usr/lib/postgresql/15/bin/postgres ] && return
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing postgresql-15 for the tests …"
    scripts/apt.sh postgresql-15 ||
      echo "postgresql-15 could not be installed: its tests are skipped." >&2
  fi
}

kafka() {
  .venv/bin/python -m tests.servers_kafka || echo "Kafka could not be fetched: its tests are skipped." >&2
}

chromium() {
  type -P chromium >/dev/null && return  # the program, not this function
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing chromium for the tests …"
    scripts/apt.sh chromium fonts-liberation ||
      echo "chromium could not be installed: the tests of the page are skipped." >&2
  fi
}

archive() {
  [ .venv/spark.jsa -nt requirements.lock ] && return
  for _ in 1 2; do # Spark may give up on a busy machine
    .venv/bin/python -m tests.startup >.venv/spark.jsa.log 2>&1 && return
  done
  echo "Spark's JVMs start without a class data archive: see .venv/spark.jsa.log." >&2
}

[ $# -gt 0 ] || set -- postgres kafka chromium archive
installations=()
for name; do
  "$name" &
  installations+=($!)
done
for installation in "${installations[@]}"; do wait "$installation"; done
