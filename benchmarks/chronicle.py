"""Chronicle Queue, as a command: its jars from Maven's public repository by the Ivy that Spark carries, and our driver.

The driver is compiled when it is needed; nothing that was built lies in this folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

VERSION = "2026.4"
JAVA_HEAP = "1g"
FETCH_SECONDS_MAX = 600.0
SOURCE = Path(__file__).parent / "chronicle" / "Scheme.java"

# It reaches into the JDK, which has to be allowed since Java 17; the last keeps it from calling home.
OPTIONS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED",
    "--add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "-Dchronicle.analytics.disable=true",
)


class NotHere(RuntimeError):
    """Chronicle cannot run here; the message says why."""


def command(workdir: Path) -> list[str]:
    """What runs the driver; the task and its numbers follow."""
    java, javac = tool("java"), tool("javac")
    libraries = class_path(java, workdir)
    classes = workdir / "classes"
    done = subprocess.run(
        [javac, "-cp", libraries, "-d", str(classes), str(SOURCE)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotHere(f"{SOURCE.name} could not be compiled: {done.stderr.strip()[-1000:]}")
    return [java, f"-Xmx{JAVA_HEAP}", *OPTIONS, "-cp", f"{classes}{os.pathsep}{libraries}", SOURCE.stem]


def tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME", "")
    inside = Path(home) / "bin" / name
    found = str(inside) if home and inside.exists() else shutil.which(name)
    if found is None:
        raise NotHere(f"Chronicle Queue needs a JDK (java and javac), and there is no {name}")
    return found


def class_path(java: str, workdir: Path) -> str:
    """The jars of Chronicle Queue and of all that it needs; Ivy keeps what it has fetched once."""
    module, paths = workdir / "ivy.xml", workdir / "classpath"
    queue = f'org="net.openhft" name="chronicle-queue" rev="{VERSION}" conf="default->master,runtime(default)"'
    info = '<info organisation="tidelog" module="chronicle"/>'
    wanted = f"{info}<dependencies><dependency {queue}/></dependencies>"
    module.write_text(f'<ivy-module version="2.0">{wanted}</ivy-module>')
    only = ["-ivy", str(module), "-confs", "default", "-types", "jar", "bundle", "-cachepath", str(paths)]
    home = f"-Divy.home={Path.home() / '.ivy2'}"
    fetch = [java, home, "-cp", str(ivy()), "org.apache.ivy.Main", "-warn", *only]
    try:
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as late:
        raise NotHere(f"Chronicle Queue {VERSION} could not be fetched in {FETCH_SECONDS_MAX:.0f} s") from late
    if done.returncode or not paths.exists():
        raise NotHere(f"Chronicle Queue {VERSION} could not be fetched: {(done.stdout + done.stderr).strip()[-1000:]}")
    return paths.read_text().strip()


def ivy() -> Path:
    import pyspark

    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise NotHere("Chronicle Queue is fetched by the Ivy that Spark carries, and this Spark has none")
    return found[-1]
