#!/usr/bin/env bash
# Install Debian packages, as root. Waits while another process installs some, and tries again when the network fails.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

apt() {
  local output failures=0 attempt
  for attempt in $(seq 180); do
    output=$(apt-get -qq -o DPkg::Lock::Timeout=900 -o Acquire::Retries=3 "$@" 2>&1) && return
    case "$output" in
      *"Could not get lock"* | *"Unable to acquire"* | *"Unable to lock"*) ;;
      *) failures=$((failures + 1)) ;;
    esac
    [ "$failures" -lt 3 ] || break
    sleep 5
  done
  printf '%s\n' "$output" >&2
  return 1
}

apt update
apt install -y --no-install-recommends "$@"
