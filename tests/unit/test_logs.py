"""What a command prints on the console, and what goes into its log files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import os, sys
from pathlib import Path
from tidelog.cli.logs import native_messages_logged_into

with native_messages_logged_into(Path(sys.argv[1])):
    os.write(2, b"a thread panicked\\n")
    print("a sentence", file=sys.stderr)
    os.system("echo a child complains >&2")
os.write(2, b"after\\n")
print("the end", file=sys.stderr)
"""


def test_compiled_libraries_do_not_print_on_the_console(tmp_path: Path) -> None:
    log = tmp_path / "native.log"
    done = subprocess.run([sys.executable, "-c", _SCRIPT, log], capture_output=True, text=True, check=True)
    assert done.stderr == "a sentence\nafter\nthe end\n"
    assert log.read_text() == "a thread panicked\na child complains\n"


_ON_A_FULL_DISK = """
import contextlib, logging, os
from tidelog.cli.main import main

with contextlib.suppress(SystemExit):
    main(["--version"])
logging.getLogger("tidelog").addHandler(logging.FileHandler("/dev/full"))
logging.getLogger("tidelog").warning("lost")
os._exit(0)  # closing the file would fail as well
"""


def test_a_log_file_on_a_full_disk_prints_no_stack_trace() -> None:
    done = subprocess.run([sys.executable, "-c", _ON_A_FULL_DISK], capture_output=True, text=True, check=True)
    assert done.stderr == ""
