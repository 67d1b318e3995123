"""Whose a journal is: the pipeline and its database, whatever their machines are called."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelog.engine.definition import Definition
from tidelog.engine.owner import Owner, owner_of


@dataclass
class Named:
    database: str

    def names(self) -> dict[str, str]:
        return {"server": "anything", "database": self.database}


@pytest.mark.parametrize(
    ("source", "database", "known"),
    [
        ({"database.hostname": "h", "database.dbname": "shop"}, "shop", "shop"),
        ({"database.hostname": "shop", "database.dbname": "shop"}, "shop", "shop"),
        ({"database.hostname": "h"}, "h", ""),
        ({"database.hostname": "h"}, "PDB1", "PDB1"),
    ],
)
def test_hosts_do_not_count(source: dict[str, str], database: str, known: str) -> None:
    definition = Definition("p", {"connector": "iseries", **source}, {"type": "console"})
    assert owner_of(definition, Named(database)) == Owner("p", "iseries", known)  # type: ignore[arg-type]
