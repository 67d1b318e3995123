# Sourced: find Java 17 or 21 for Spark and set JAVA_HOME; install Debian's where there is none and we may.

java_major() { "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }

java_find() {
  for candidate in "${JAVA_HOME:-/none}" /usr/lib/jvm/*17* /usr/lib/jvm/*21* "$(dirname "$(dirname "$(readlink -f "$(command -v java || echo /none/bin/java)")")")"; do
    [ -x "$candidate/bin/java" ] || continue
    case "$(java_major "$candidate/bin/java")" in
      17 | 21) export JAVA_HOME="$candidate"; return 0 ;;
    esac
  done
  return 1
}

if ! java_find; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing openjdk-17-jre-headless for Spark …"
    scripts/apt.sh openjdk-17-jre-headless || true # what is missing is said below
  fi
  java_find || {
    echo "Spark needs Java 17 or 21, and none was found. Only root can install it from here." >&2
    echo "Install it (Debian: sudo apt-get install openjdk-17-jre-headless), or set JAVA_HOME to its folder." >&2
    exit 1
  }
fi
