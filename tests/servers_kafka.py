"""Kafka for tests, real and without containers: a broker (KRaft, one node) and a Kafka Connect worker beside it.

The jars come from Maven's public repository, fetched by the Ivy that Spark carries, into Ivy's own cache. Both servers
listen on 127.0.0.1 only, keep their state in a temporary folder, have small heaps, and die with the tests.
Run as a program, this module fetches the jars.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

from demo.embedded import NoServer, free_port

from tests import patience
from tests.patience import wait_until, wall_seconds

__all__ = ["ConnectWorker", "KafkaBroker", "install"]

KAFKA = "3.9.1"
FETCH_S = 1200.0
JARS = {
    "kafka_2.13": ("org.apache.kafka", KAFKA),
    "connect-runtime": ("org.apache.kafka", KAFKA),
    "connect-file": ("org.apache.kafka", KAFKA),
    "slf4j-reload4j": ("org.slf4j", "1.7.36"),
}
START_S = 600.0
STOP_SECONDS_MAX = 20.0
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
"""


# -- the jars --------------------------------------------------------------------------------------------------------


def install() -> str:
    """The class path, fetched unless it is there; `NoServer` says why it cannot be had."""
    java, kept = _java(), _ivy_home() / f"tidelog-kafka-{KAFKA}.classpath"
    known = kept.read_text() if kept.exists() else ""
    if known and all(Path(jar).exists() for jar in known.split(os.pathsep)):
        return known
    with tempfile.TemporaryDirectory(prefix="tidelog-kafka-") as folder:
        found = _fetched(java, Path(folder))
    kept.write_text(found)
    return found


def _ivy_home() -> Path:
    """Where Ivy keeps what it fetched; Java and Python may differ in what they take for the home of a user."""
    return Path.home() / ".ivy2"


def _fetched(java: str, folder: Path) -> str:
    module, paths = folder / "ivy.xml", folder / "classpath"
    module.write_text(_module())
    only = ["-ivy", str(module), "-confs", "default", "-types", "jar", "bundle", "-cachepath", str(paths)]
    home = f"-Divy.home={_ivy_home()}"
    command = [java, *SMALL, home, "-cp", str(_ivy()), "org.apache.ivy.Main", "-warn", *only]
    done = patience.run(command, seconds=FETCH_S)
    if done.returncode:
        raise NoServer(f"Kafka {KAFKA} could not be fetched: {(done.stdout + done.stderr).strip()[-1000:]}")
    return paths.read_text().strip()


def _module() -> str:
    wanted = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->master,runtime(default)"/>'
        for name, (group, version) in JARS.items()
    )
    info = '<info organisation="tidelog" module="kafka"/>'
    return f'<ivy-module version="2.0">{info}<dependencies>{wanted}</dependencies></ivy-module>'


def _ivy() -> Path:
    import pyspark

    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise NoServer("Kafka is fetched by the Ivy that Spark carries, and this Spark has none")
    return found[-1]


def _java() -> str:
    home = os.environ.get("JAVA_HOME", "")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise NoServer("Kafka needs Java, and none was found: set JAVA_HOME")
    return found


# -- processes -------------------------------------------------------------------------------------------------------


class Jvm:
    """A Java server: a folder for its files and log, a process, and how it is known to be ready."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.folder = Path(tempfile.mkdtemp(prefix="tidelog-kafka-"))
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / "log4j.properties").write_text(LOG4J)

    def command(self, main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        return [_java(), *SMALL, logging, "-cp", install(), main, *arguments]

    def write(self, name: str, settings: Mapping[str, object]) -> str:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def launch(self, ready: Callable[[], bool], main: str, *arguments: str) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_mortal(), *self.command(main, *arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop their servers
            )
        wait_until(ready, self._log_end, seconds=START_S, poll_s=0.1, check=self._require_alive)

    def _require_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            log = self._log_end()
            self.stop()
            raise NoServer(f"{self.title} did not start; its log ends:\n{log}")

    def _log_end(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _mortal() -> list[str]:
    """Let the server die with us. Linux looks at the starting *thread*, so only the main thread may ask for it."""
    main = threading.current_thread() is threading.main_thread()
    return ["setpriv", "--pdeathsig", "KILL"] if main and shutil.which("setpriv") else []


class KafkaBroker(Jvm):
    """One broker that is its own controller; topics appear when they are first written to."""

    def __init__(self) -> None:
        super().__init__(f"Kafka {KAFKA}")
        self.port = free_port()
        self._controller = free_port()

    @classmethod
    def start(cls) -> KafkaBroker:
        broker = cls()
        settings = broker.write("server.properties", broker._settings())
        broker._format(settings)
        broker.launch(broker._listens, "kafka.Kafka", settings)
        return broker

    @property
    def address(self) -> str:
        """`bootstrap.servers` of its clients."""
        return f"127.0.0.1:{self.port}"

    def _settings(self) -> dict[str, object]:
        alone = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "log.dirs": self.folder / "data",
            **dict.fromkeys(alone, 1),
            "transaction.state.log.min.isr": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
        }

    def _format(self, settings: str) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self.command("kafka.tools.StorageTool", "format", "-t", cluster, "-c", settings)
        done = patience.run(command)
        if done.returncode:
            self.stop()
            raise NoServer(f"{self.title}: its folder could not be formatted: {done.stderr.strip()[-1000:]}")

    def _listens(self) -> bool:
        """The port opens when the broker has joined its cluster."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=wall_seconds(10)).close()
        except OSError:
            return False
        return True


class ConnectWorker(Jvm):
    """A Kafka Connect worker in distributed mode, the only one of its group."""

    def __init__(self, broker: KafkaBroker) -> None:
        super().__init__(f"Kafka Connect {KAFKA}")
        self.url = f"http://127.0.0.1:{free_port()}"
        self._broker = broker

    @classmethod
    def start(cls, broker: KafkaBroker) -> ConnectWorker:
        worker = cls(broker)
        settings = worker.write("worker.properties", worker._settings())
        worker.launch(worker._answers, "org.apache.kafka.connect.cli.ConnectDistributed", settings)
        return worker

    def _settings(self) -> dict[str, object]:
        group = f"connect-{uuid.uuid4().hex[:8]}"
        topics = {f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")}
        copies = {f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")}
        return {
            "bootstrap.servers": self._broker.address,
            "group.id": group,
            "listeners": self.url,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            **topics,
            **copies,
            "offset.storage.partitions": 1,
            "status.storage.partitions": 1,
            "offset.flush.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "plugin.discovery": "service_load",
        }

    def _answers(self) -> bool:
        """It listens before it belongs to its group; then this would still be refused."""
        try:
            with urllib.request.urlopen(f"{self.url}/connectors", timeout=wall_seconds(10)) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


if __name__ == "__main__":
    try:
        install()
    except NoServer as reason:
        sys.exit(str(reason))
