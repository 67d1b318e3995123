"""The service: connectors by name, what each should be (kept in the store) and what each is (its runner).

All connectors are queries of one Spark session. Calls that change one connector
come one after the other; who would have to wait for long is told so. What should run is remembered before it is done:
a service that starts again goes on with it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from tidelog import connectors
from tidelog.contracts import ControlStore
from tidelog.engine import flat
from tidelog.engine.control import Control, Subject
from tidelog.engine.control import shown as offset_shown
from tidelog.engine.definition import Definition
from tidelog.engine.home import Home
from tidelog.engine.watching import Ended, walks
from tidelog.errors import ConfigError, Conflict, NotFound, TidelogError
from tidelog.model.control import PAUSED, RUNNING, STOPPED, Connector
from tidelog.model.version import __version__
from tidelog.server import runner as runners
from tidelog.server import validation
from tidelog.server.events import Events
from tidelog.server.news import News, shown
from tidelog.server.runner import Runner, Tally
from tidelog.server.samples import Sample, Samples, sample
from tidelog.server.shared_session import SharedSession
from tidelog.spark.progress import Progress

FAILED, UNASSIGNED = runners.FAILED, runners.UNASSIGNED
_PATIENCE_S = 1.0
_END_S = 60.0
_SAMPLE_S = 1.0
_LOG = logging.getLogger("tidelog.server")


class Service:
    def __init__(
        self,
        store: ControlStore,
        *,
        storage: str = "",
        worker: str = "127.0.0.1:8083",
        spark_conf: Mapping[str, str] | None = None,
    ) -> None:
        """`storage` is where the store is, for the runs; `worker` how this service calls itself; `spark_conf` are the
        settings of the session."""
        self.store = store
        self.control = Control(store, self.subject)
        self.events = Events()
        self.worker = worker
        self.problem = ""
        """What keeps the service from its work at the moment, in a sentence."""
        self._storage = storage
        self._home = Home.at("")
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._runners: dict[str, Runner] = {}
        self._held: dict[str, ExitStack] = {}
        self._tallies: dict[str, Tally] = {}
        self._samples: dict[str, Samples] = {}
        self._news: dict[str, News] = {}
        self._seen: dict[str, tuple[object, ...]] = {}
        self.session = SharedSession(spark_conf or {})
        self._closing = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="tidelog-samples", daemon=True)

    # -- the life of the service -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Go on with what should run."""
        for connector in self.store.connectors():
            with self._only(connector.name):
                self._follow(connector)
        self._sampler.start()

    def close(self) -> None:
        """End everything; what should run is remembered."""
        self._closing.set()
        self.events.end()
        for runner in list(self._runners.values()):
            runner.ask_to_end()
        for runner in list(self._runners.values()):
            runner.end(_END_S)
        for held in self._held.values():
            held.close()
        if self._sampler.is_alive():
            self._sampler.join(10)
        self.session.close()
        self.store.close()

    # -- connectors ------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(connector.name for connector in self.store.connectors())

    def connector(self, name: str) -> Connector:
        if not flat.named(name):
            raise _unknown(name)
        try:
            return self.store.connector(name)
        except NotFound as exc:
            raise _unknown(name, self.names()) from exc

    def create(self, name: str, config: Mapping[str, str], target: str = RUNNING) -> Connector:
        flat.require_told(config)
        written = _named(name, config)
        validation.require_valid(written)
        if target != STOPPED:
            _require_capture(written, ConfigError)
        with self._only(name):
            self._require_kin(name, flat.plugin_of(written).name)
            made = self.store.create(Connector(name, written, target))
            self._follow(made)
        return made

    def _require_kin(self, name: str, plugin: str) -> None:
        """Offsets outlive their connector, and the next one of its name goes on from there: it must understand them."""
        document = connectors.offsets(plugin).DOCUMENT
        for kept in self.store.offsets(name):
            if kept.offset is not None and document.problems(offset_shown(kept.offset)):
                raise Conflict(
                    f"The offsets of an earlier connector {name!r} are kept, and {plugin} does not understand them.",
                    hint="Take another name.",
                )

    def configure(self, name: str, config: Mapping[str, str], read: Connector | None = None) -> tuple[Connector, bool]:
        """Replace the config of a connector, or create one; whether it was created. One that cannot capture yet is
        created stopped: there is nothing else it could be. `read` is what the new config is based on, if it is."""
        try:
            before = read or self.connector(name)
        except NotFound:
            captures = flat.plugin_of(config).captures
            return self.create(name, config, RUNNING if captures else STOPPED), True
        written = _named(name, flat.kept(config, before.config))
        flat.require_told(written)
        if flat.plugin_of(written) != flat.plugin_of(before.config):
            raise ConfigError(
                f"{name!r} is a connector of {flat.plugin_of(before.config).name}, and its offsets are of that kind.",
                hint="Create another connector for another kind of source.",
            )
        validation.require_valid(written)
        if before.target != STOPPED:
            _require_capture(written, ConfigError)
        with self._only(name):
            after = self.store.update(replace(before, config=written))
            self._restart(after)
        return after, False

    def delete(self, name: str) -> None:
        with self.only(name):
            self._let_go(name)
            self.store.forget(name)
            for known in (self._samples, self._news, self._seen, self._tallies):
                known.pop(name, None)
        self.events.tell("status", {"connector": name, "state": "DELETED"})

    # -- states ----------------------------------------------------------------------------------------------------

    def become(self, name: str, target: str) -> None:
        """Run, pause or stop a connector; asked for what it is already, nothing happens."""
        with self.only(name) as connector:
            if target != STOPPED:
                _require_capture(connector.config, Conflict)
            if connector.target != target:
                connector = self.store.update(replace(connector, target=target))
            self._follow(connector)

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        with self.only(name) as connector:
            if not only_failed or self.state(connector)[0] == FAILED:
                self._restart(connector)

    def state(self, connector: Connector) -> tuple[str, str]:
        """What a connector is now, and the sentence that says why."""
        runner = self._runners.get(connector.name)
        if runner is None:
            held = connector.target != PAUSED or connector.name in self._held
            return (connector.target if held else FAILED, "" if held else self._why(connector.name))
        if runner.state == runners.ENDED:
            return STOPPED, ""
        if runner.state == runners.ASKED:
            return (UNASSIGNED if connector.target == RUNNING else connector.target), ""
        return runner.state, runner.trace

    def _why(self, name: str) -> str:
        pid = Home.at(name).holder("run")
        return f"Another process runs it (process {pid or 'unknown'}). Stop that one, then pause again."

    def status(self, name: str) -> dict[str, Any]:
        return self.status_of(self.connector(name))

    def status_of(self, connector: Connector) -> dict[str, Any]:
        state, trace = self.state(connector)
        told = {"state": state, "worker_id": self.worker, "version": __version__}
        told |= {"trace": trace} if trace else {}
        tasks = [] if state == STOPPED else [{"id": 0, **told}]
        return {"name": connector.name, "connector": told, "tasks": tasks, "type": "source"}

    def subject(self, name: str) -> Subject:
        """The connector as the rules of offsets see it."""
        connector = self.connector(name)
        plugin, state = flat.plugin_of(connector.config), self.state(connector)[0]
        return Subject(name, plugin.name, self._known(connector), state)

    def definition(self, name: str) -> Definition:
        """What the config means now: references are resolved."""
        return replace(flat.definition(name, self.connector(name).config), store=self._storage)

    def _known(self, connector: Connector) -> Definition | None:
        """To ask its source; None where it has none that could be asked, or a reference stands for nothing here."""
        if not flat.plugin_of(connector.config).captures:
            return None
        try:
            return self.definition(connector.name)
        except ConfigError:
            return None

    # -- doing it, with the connector's lock held ------------------------------------------------------------------

    @contextmanager
    def _only(self, name: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=_PATIENCE_S):
            raise Conflict(f"Another call is busy with {name!r}.", hint="Look at its status, then repeat.")
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def only(self, name: str) -> Iterator[Connector]:
        """The connector; nobody else changes it meanwhile."""
        self.connector(name)
        with self._only(name):
            yield self.connector(name)

    def _follow(self, connector: Connector) -> None:
        """Make it what it should be."""
        runner = self._runners.get(connector.name)
        if connector.target == RUNNING and runner is not None and runner.alive:
            return
        self._let_go(connector.name)
        if connector.target == RUNNING:
            self._start(connector)
        elif connector.target == PAUSED:
            self._hold(connector.name)
        self._tell(connector)

    def _restart(self, connector: Connector) -> None:
        self._let_go(connector.name)
        self._follow(connector)

    def _start(self, connector: Connector) -> None:
        name, changed = connector.name, partial(self._ran, connector)
        hidden = partial(flat.secrets, connector.config)
        means = partial(self.definition, name)
        new = Runner(name, means, self.session.get, self.store, self._tally(name), hidden, changed)
        self._runners[name] = new
        new.start()

    def _ran(self, connector: Connector) -> None:
        """Its runner has another state. One that came to its end by itself (`initial_only`) need not start again."""
        if self._runners[connector.name].state == runners.ENDED:
            try:
                self.store.update(replace(self.store.connector(connector.name), target=STOPPED))
            except TidelogError as exc:  # then it starts once more with the service, finds nothing to do, and ends
                self.problem = str(exc)
        self._tell(connector)

    def _hold(self, name: str) -> None:
        """While it is paused nobody else runs it."""
        held = ExitStack()
        try:
            held.enter_context(Home.open(name).lock("run"))
        except ConfigError as exc:
            _LOG.warning("%s is paused, but its name is not held: %s", name, exc)
            return
        self._held[name] = held

    def _let_go(self, name: str) -> None:
        runner = self._runners.get(name)
        if runner is not None:
            if not runner.end(_END_S):
                raise Conflict(f"{name!r} is still busy with its last batch.", hint="It ends then; look again.")
            del self._runners[name]
        if name in self._held:
            self._held.pop(name).close()

    def _tell(self, connector: Connector) -> None:
        state, trace = self.state(connector)
        self.events.tell("status", {"connector": connector.name, "state": state, "trace": trace})

    # -- watching --------------------------------------------------------------------------------------------------

    def latest(self, name: str) -> Sample:
        connector = self.connector(name)
        found = self._sampled(name).since(10)
        return found[-1] if found else self._now(connector.name)

    def history(self, name: str, seconds: int) -> list[dict[str, Any]]:
        self.connector(name)
        return self._sampled(name).points(seconds)

    def counts(self, name: str) -> Mapping[str, int]:
        """Events that were delivered by this service, by table."""
        return self._tally(name).tables + Counter(self.progress(name).tables)

    def ended(self, name: str) -> tuple[Ended, ...]:
        """The snapshots that ended, the last ones last."""
        return self._tally(name).ended + self.progress(name).ended

    def news(self, name: str) -> News:
        self.connector(name)
        with self._guard:
            return self._news.setdefault(name, News(name, Home.at(name), self.store))

    def _sampled(self, name: str) -> Samples:
        with self._guard:
            return self._samples.setdefault(name, Samples())

    def _now(self, name: str) -> Sample:
        runner = self._runners.get(name)
        return sample(Home.at(name), runner.progress if runner else None, self._tally(name).events)

    def progress(self, name: str) -> Progress:
        """How its present run is doing; a blank one when there is none."""
        runner = self._runners.get(name)
        return (runner.progress if runner is not None else None) or Progress()

    def _tally(self, name: str) -> Tally:
        with self._guard:
            return self._tallies.setdefault(name, Tally())

    def _sample(self) -> None:
        while not self._closing.wait(_SAMPLE_S):
            try:
                problems = [self._looked(runner) for runner in list(self._runners.values())]
                self.problem = next(filter(None, problems), "")
            except Exception as exc:  # noqa: BLE001  whatever it is, the next second is another try
                _LOG.exception("sampling failed")
                self.problem = f"Unexpected {type(exc).__name__}."

    def _looked(self, runner: Runner) -> str:
        """What kept us from looking at it; one that is away must not hide the others."""
        try:
            self._revive(runner)
            self._look(runner)
        except (TidelogError, OSError) as exc:  # a store or a disk that is away: asked again in a second
            return str(exc)
        return ""

    def _revive(self, runner: Runner) -> None:
        """One that was asked to end for a restart, and took longer than anybody waited."""
        if runner.state == runners.ASKED and not runner.alive and self._runners.get(runner.name) is runner:
            with self._only(runner.name):
                self._follow(self.store.connector(runner.name))

    def _look(self, runner: Runner) -> None:
        name = runner.name
        now = self._now(name)
        self._sampled(name).add(now)
        self.events.tell("metrics", {"connector": name, "state": runner.state, **asdict(now)})
        for told in self.news(name).take():
            self.events.tell("notification", {"connector": name, **shown(told)})
        snapshot = asdict(walks(Home.at(name)))
        mark = str((snapshot, [ended.id for ended in self.ended(name)[-1:]]))  # a short one begins and ends unseen
        seen, self._seen[name] = self._seen.get(name), (mark, now.batch_id)
        if seen is None or seen[0] != mark:
            self.events.tell("snapshot", {"connector": name, **snapshot})
        if seen is not None and seen[1] != now.batch_id:
            self.events.tell("offsets", {"connector": name, "batch_id": now.batch_id})


def _named(name: str, config: Mapping[str, str]) -> dict[str, str]:
    if config.get(flat.NAME, name) != name:
        raise ConfigError(
            f"The config says the name {config[flat.NAME]!r}, but the connector is called {name!r}.",
            hint="Leave the name out of the config, or write the same.",
        )
    return {**config, flat.NAME: name}


def _require_capture(config: Mapping[str, str], refusal: type[TidelogError]) -> None:
    plugin = flat.plugin_of(config)
    if not plugin.captures:
        raise refusal(
            f"Capturing changes of {plugin.title} isn't there yet, so it cannot be started.",
            hint="Keep the connector STOPPED (initial_state): its offsets can be managed.",
        )


def _unknown(name: str, names: list[str] | None = None) -> NotFound:
    return NotFound(f"Connector {name} not found.", hint=validation.closest(name, names or []))
