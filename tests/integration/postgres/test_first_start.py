"""A first start, and a state folder that was left behind: what an earlier start left elsewhere tells them apart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.servers import Database
from tidelog.contracts import Connector
from tidelog.engine.apart import run_apart
from tidelog.engine.definition import Definition, connector_of, from_mapping
from tidelog.engine.first_start import starts_over
from tidelog.engine.home import Home
from tidelog.engine.owner import claim, owner_of
from tidelog.engine.readers import Readers
from tidelog.engine.storage import files_of
from tidelog.errors import ConfigError
from tidelog.model.control import Committed
from tidelog.stores.sqlite import SqliteStore

Define = Callable[..., Definition]


@pytest.fixture
def define(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Define:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    source = {
        "connector": "postgres",
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "slot.name": f"{database.dbname}_slot",
    }

    def definition(mode: str = "initial", name: str = "shop", **sections: dict[str, str]) -> Definition:
        own = {"name": name, "source": source | {"snapshot.mode": mode}, "sink": {"type": "console"}}
        return from_mapping({**own, **sections})

    return definition


def start(definition: Definition, folder: Path, written: str = "", *, fresh: bool = False) -> bool:
    """What `tidelog run` asks before it creates anything."""
    with closing(connector_of(definition)) as connector, closing(SqliteStore(folder / "store.sqlite")) as store:
        home = Home.open(definition.name)
        return starts_over(definition, home, connector, store, lambda _: written, fresh=fresh)


def prepared(definition: Definition) -> Connector:
    connector = connector_of(definition)
    connector.prepare()
    return connector


def test_a_first_start_is_one_also_when_it_died_before_its_first_batch(define: Define, tmp_path: Path) -> None:
    assert start(define(), tmp_path) is False
    prepared(define()).close()
    assert start(define(), tmp_path) is False


def test_a_slot_without_its_state_folder_is_refused_until_somebody_chooses(define: Define, tmp_path: Path) -> None:
    prepared(define()).close()
    with pytest.raises(ConfigError, match=r"the replication slot test_\d+_slot") as caught:
        start(define(), tmp_path)
    assert all(way in caught.value.hint for way in ("TIDELOG_HOME", "--fresh", "start: fresh", "no_data"))
    assert start(define("no_data"), tmp_path) is False
    assert start(define(stream={"start": "fresh"}), tmp_path) is True
    for _ in range(2):
        assert start(define(), tmp_path) is True, "a choice that was not followed yet stands"


def test_a_choice_counts_once(define: Define, tmp_path: Path) -> None:
    prepared(define()).close()
    assert start(define(), tmp_path, fresh=True) is True
    checkpoint = Home.at("shop").checkpoint / "offsets"
    checkpoint.mkdir(parents=True)
    (checkpoint / "0").touch()
    assert start(define(), tmp_path) is False
    (checkpoint / "0").unlink()
    with pytest.raises(ConfigError, match="the replication slot"):
        start(define(), tmp_path)


def test_a_fresh_start_without_a_snapshot_is_a_contradiction(define: Define, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no_data reads none"):
        start(define("no_data"), tmp_path, fresh=True)


@pytest.mark.parametrize("mode", ["always", "when_needed"])
def test_modes_that_read_again_by_themselves_start_over(define: Define, tmp_path: Path, mode: str) -> None:
    """Not as a first start: the target has rows, and loses those that the source does not have."""
    assert start(define(mode, name="new"), tmp_path) is False
    prepared(define()).close()
    assert start(define(mode), tmp_path) is True


def test_a_slot_of_another_database_says_nothing(
    define: Define, database: Database, tmp_path: Path, postgres: object
) -> None:
    other = postgres.create_database("elsewhere")  # type: ignore[attr-defined]
    try:
        other.execute(f"SELECT pg_create_logical_replication_slot('{database.dbname}_slot', 'pgoutput')")
        assert start(define(), tmp_path) is False
    finally:
        other.drop()


def test_a_journal_elsewhere(define: Define, tmp_path: Path) -> None:
    definition = define(journal={"path": str(tmp_path / "journal")})
    with closing(connector_of(definition)) as connector:
        claim(files_of(definition, Home.at("shop")), owner_of(definition, connector))
    with pytest.raises(ConfigError, match="its journal"):
        start(definition, tmp_path)


def test_rows_in_the_target(define: Define, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows of public\.t in the target"):
        start(define(), tmp_path, written="public.t")


def test_offsets_in_a_shared_store(define: Define, tmp_path: Path) -> None:
    """They are of a batch that was committed: also a folder that accepted a first start has lost its checkpoint."""
    assert start(define(), tmp_path) is False
    with closing(SqliteStore(tmp_path / "store.sqlite")) as store:
        store.mirror("shop", {"server": "shop"}, Committed("query", 1, {"lsn": 1}, 1))
    with pytest.raises(ConfigError, match="offsets in the store"):
        start(define(), tmp_path)
    assert start(define(), tmp_path, fresh=True) is True


def test_a_checkpoint_is_no_first_start(define: Define, tmp_path: Path) -> None:
    prepared(define()).close()
    offsets = Home.open("shop").checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("{}")
    assert start(define(), tmp_path) is False
    with pytest.raises(ConfigError, match="has a checkpoint") as caught:
        start(define(), tmp_path, fresh=True)
    assert "tidelog offsets delete shop" in caught.value.hint


def test_a_query_beside_a_capture_finds_slot_and_journal_as_they_should_be(define: Define, tmp_path: Path) -> None:
    definition, capture = define(stream={"capture": "apart"}), define()
    with running(capture):
        assert start(definition, tmp_path) is False
        assert start(capture, tmp_path) is False, "one that is captured apart because a capture runs"
        assert start(define(name="other", journal=journal_of(capture), stream={"capture": "apart"}), tmp_path) is False


def test_a_capture_that_made_the_slot_leaves_the_first_start_to_the_query(define: Define, tmp_path: Path) -> None:
    with running(define()):
        pass
    assert start(define(), tmp_path) is False


def test_a_query_that_followed_a_capture_before_is_refused(define: Define, tmp_path: Path) -> None:
    capture = define()
    definition = define(name="second", journal=journal_of(capture), stream={"capture": "apart"})
    with running(capture):
        Readers(files_of(capture, Home.at("shop"))).acknowledge("second", 1)
        with pytest.raises(ConfigError, match="its place in the journal of the capture"):
            start(definition, tmp_path)


def test_a_capture_on_a_slot_of_an_earlier_start_accepts_nothing(define: Define, tmp_path: Path) -> None:
    prepared(define()).close()
    with running(define()):
        pass
    with pytest.raises(ConfigError, match="the replication slot"):
        start(define(), tmp_path)


def journal_of(definition: Definition) -> dict[str, str]:
    return {"path": str(Home.at(definition.name).journal)}


class running:
    """`tidelog capture`, from its first word to its end."""

    def __init__(self, definition: Definition) -> None:
        self._stop, self._started = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=run_apart, args=(definition, self._stop, self._watch))

    def _watch(self, _: object) -> None:
        self._started.set()

    def __enter__(self) -> None:
        self._thread.start()
        wait_until(self._started.is_set, "the capture")

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
