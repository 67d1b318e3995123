#!/usr/bin/env bash
# Install Debian packages, as root. Waits while another process installs some, and tries again when the network fails;
# gives up after APT_SECONDS_MAX seconds (default half an hour).
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

deadline=$((SECONDS + ${APT_SECONDS_MAX:-1800}))

apt() {
  local output='' failures=0 left
  while left=$((deadline - SECONDS)) && [ "$left" -gt 0 ]; do
    output=$(timeout --kill-after=60 "$left" \
      apt-get -qq -o DPkg::Lock::Timeout="$left" -o Acquire::Retries=3 "$@" 2>&1) && return
    case "$output" in
      *"Could not get lock"* | *"Unable to acquire"* | *"Unable to lock"*) ;;
      *) failures=$((failures + 1)) ;;
    esac
    [ "$failures" -lt 3 ] || break
    sleep 5
  done
  [ "$left" -gt 0 ] || echo "apt-get $1 was given up: the time is over (APT_SECONDS_MAX)." >&2
  printf '%s\n' "$output" >&2
  return 1
}

apt update
apt install -y --no-install-recommends "$@"
