"""A slot that exists before a pipeline's first start, made as that start would make it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tidelog.engine.definition import Definition, connector_of
from tidelog.engine.first_start import accept
from tidelog.engine.home import Home


def prepare_source(definition: Definition, homes: Path | None = None) -> None:
    """Changes count from now on. `homes` is the folder of state folders, where the environment does not name it."""
    home = Home.at(definition.name) if homes is None else Home(homes / definition.name)
    home.path.mkdir(parents=True, exist_ok=True)
    accept(home)
    with closing(connector_of(definition)) as connector:
        connector.prepare()
