"""A setting of Debezium that tidelog does not have is answered by what takes its place, not by a similar name."""

from __future__ import annotations

import pytest

from tidelog.connectors.postgres import config
from tidelog.core import debezium_settings
from tidelog.errors import ConfigError

SOURCE = {"database.user": "u", "database.dbname": "d"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plugin.name", "always reads with pgoutput"),
        ("snapshot.fetch.size", "incremental.snapshot.chunk.size"),
        ("slot.drop.on.stop", "the slot stays"),
        ("slot.max.retries", "is retried"),
        ("snapshot.max.threads", "incremental.snapshot.parallelism"),
        ("snapshot.locking.mode", "holds up no writer"),
        ("snapshot.select.statement.overrides", "--where"),
        ("snapshot.select.statement.overrides.public.orders", "--where"),
        ("max.batch.size", "maxEventsPerTrigger"),
        ("max.queue.size.in.bytes", "section journal"),
        ("table.whitelist", "include.list"),
        ("database.server.name", "topic.prefix"),
        ("key.converter.schemas.enable", "Leave it out"),
        ("transforms.unwrap.type", "Leave it out"),
        ("publication.autocreate.modes", "Did you mean 'publication.autocreate.mode'?"),
        ("slot.nam", "Did you mean 'slot.name'?"),
    ],
)
def test_the_answer(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match="has no setting") as refused:
        config.read({**SOURCE, name: "x"})
    assert words in refused.value.hint
    assert ("Did you mean" in refused.value.hint) == ("Did you mean" in words)


def test_no_setting_of_ours_is_answered() -> None:
    assert [setting.name for setting in config.SETTINGS if debezium_settings.answer(setting.name)] == []
