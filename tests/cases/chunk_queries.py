"""Queries of chunks, compared by the rows they select, not by their text.

A peer's SQL and ours run over the same grid of keys, with NULLs where a column may hold them, in an embedded database.
Peers cut a chunk by LIMIT, we by the key where the LIMIT would cut; so ours is read in our own two steps. Where the
two differ on purpose, the comparison says so:
- A peer's `NOT (…)` loses rows with NULLs in the key, because unknown is not true. It is read as if it were.
- A peer does not keep a condition with an OR in it apart from the bounds. It is read as if it did.
- We always deliver a key's columns: columns are compared without those of the key.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from tidelog.connectors.oracle import walk as oracle_walk
from tidelog.connectors.postgres import walk
from tidelog.connectors.postgres.names import identifier
from tidelog.connectors.postgres.walk import Step, Walk
from tidelog.contracts import Key, Scan, Span
from tidelog.errors import ConfigError
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

Given = Mapping[str, Any]
Row = tuple[Any, ...]

_ROWS_MAX = 3000
_CHUNK = 7
"""Rows of a chunk instead of the case's own: the grid is small, and a limit has to bite."""
_TOKEN = re.compile(
    r'"(?P<quoted>[^"]+)"|(?P<plain>[A-Za-z_]\w*)|\'(?P<text>(?:[^\']|\'\')*)\'|(?P<number>\d+)',
)
_NAME = r'(?:"[^"]+"|[\w$#]+)'
_BASE = re.compile(rf"SELECT .*? FROM ({_NAME}(?:\.{_NAME})*)(?: WHERE (.*?))?(?:\s+ORDER BY .*)?\s*", re.I | re.S)
_WORDS = {"and", "or", "not", "is", "null", "in", "like", "between", "true", "false"}


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    given, expected = case["input"], case["expected"]
    try:
        return _OPS[given["op"]](given, expected)
    except ConfigError as error:
        return {"error": expected.get("error", "none"), "message": error.message}


# -- what a case is about ------------------------------------------------------------------------------------------


def _table(given: Given) -> Table:
    schema, _, name = given.get("table", "s1.table1").rpartition(".")
    told = given.get("columns") or [{"name": key, "nullable": False} for key in given.get("key_columns", [])]
    generated = given.get("generated_columns") or ()  # the catalog does not list them
    columns = tuple(Column(c["name"], "int8", nullable=c["nullable"]) for c in told if c["name"] not in generated)
    return Table(1, schema, name, columns, key=tuple(given.get("primary_key") or ()))


def _named(given: Given) -> list[Sequence[Any]]:
    """The keys that a case names."""
    found = (given.get(name) for name in ("position", "maximum_key", "boundary", "lower", "upper"))
    return [key for key in found if key is not None]


def _type(values: Sequence[Any]) -> str:
    """Of a column of the key: keys are numbers, unless the case names others."""
    kinds = {type(value) for value in values}
    return "varchar" if str in kinds else "double" if float in kinds else "bigint"


def _key(given: Given, table: Table) -> tuple[str, ...]:
    """The columns of the walk: as named, by the surrogate, by the user's key, by the primary key."""
    if given.get("key_columns"):
        return tuple(given["key_columns"])
    surrogate = given.get("surrogate_key")
    if surrogate:
        walk.require(table, [surrogate], {column.name for column in table.columns})
        return (surrogate,)
    return _selection(given).key_of(table)


def _selection(given: Given) -> Selection:
    return Selection(
        message_keys=given.get("message_key_columns") or "",
        include_columns=given.get("column_include_list") or "",
        exclude_columns=given.get("column_exclude_list") or "",
    )


def _walk(given: Given, condition: str = "") -> Walk:
    table = _table(given)
    named = list(zip(*_named(given), strict=True))
    steps = tuple(
        Step(name, _type(named[i] if named else ()), table.column(name).nullable)
        for i, name in enumerate(_key(given, table))
    )
    return Walk(_source(table), steps, _plain(condition, given), given.get("nulls_sort_last"))


def _plain(sql: str, given: Given) -> str:
    """With the embedded database's quotes."""
    marks = given.get("quote") or '"'
    return sql.translate({ord(mark): '"' for mark in marks.replace("[", "[]")})


def _source(table: Table) -> str:
    """Of three parts, the first two are the table's schema to us."""
    return ".".join(identifier(part) for part in (*table.schema.split("."), table.name) if part)


def _room(database: duckdb.DuckDBPyConnection, schema: str) -> None:
    """Make place for tables of a schema, which may stand in a database of its own."""
    parts = schema.split(".") if schema else []
    if len(parts) > 1:
        database.execute(f"ATTACH ':memory:' AS {identifier(parts[0])}")
    if parts:
        database.execute(f"CREATE SCHEMA {'.'.join(map(identifier, parts))}")


def _texts(values: Sequence[Any] | None) -> Key | None:
    return None if values is None else tuple(None if value is None else str(value) for value in values)


# -- the grid ------------------------------------------------------------------------------------------------------


class Grid:
    """The table of a case: every key around the values that the case names."""

    def __init__(self, given: Given, ours: Walk) -> None:
        self.table, self.steps = _table(given), ours.key
        self.key = [step.name for step in ours.key]
        self._database = duckdb.connect()
        last = "nulls_first_on_asc_last_on_desc" if ours.nulls_last is False else "nulls_last_on_asc_first_on_desc"
        self._database.execute(f"SET default_null_order = '{last}'")
        # It makes BETWEEN of two bounds, and cannot do that with rows of values.
        self._database.execute("PRAGMA disable_optimizer")
        self._database.execute("CREATE MACRO truth(x) AS coalesce(x, false)")
        self._create([list(column) for column in zip(*_named(given), strict=True)], _compared(ours.condition))

    def _create(self, named: Sequence[Sequence[Any]], compared: Mapping[str, list[Any]]) -> None:
        others = _others([c.name for c in self.table.columns if c.name not in self.key], self.key, compared)
        fields = [f"{identifier(step.name)} {step.type}" for step in self.steps]
        fields += [f"{identifier(name)} {_type(values)}" for name, values in others.items()]
        _room(self._database, self.table.schema)
        self._database.execute(f'CREATE TABLE {_source(self.table)} ({", ".join(fields)}, "_n" BIGINT)')
        rows = [(*key, *_some(others, n), n) for n, key in enumerate(self._keys(named))]
        marks = ", ".join("?" * len(rows[0]))
        self._database.executemany(f"INSERT INTO {_source(self.table)} VALUES ({marks})", rows)

    def _keys(self, named: Sequence[Sequence[Any]]) -> list[Row]:
        values = [self._values(step, named[i] if named else ()) for i, step in enumerate(self.steps)]
        found = list(itertools.product(*values))
        return found[:_ROWS_MAX] if len(self.key) > 3 else found

    def _values(self, step: Step, named: Sequence[Any]) -> list[Any]:
        told = [value for value in named if value is not None]
        more = {1: 40, 2: 8}.get(len(self.key), 0)
        if step.type == "varchar":
            near = {str(v) + end for v in told for end in ("", "0", *(f"{n:02}" for n in range(more)))}
        else:
            near = {v + step for v in told for step in (-1, 0, 1)} | set(range(more))
        return [*sorted(near or {1, 2, 3}), *([None] if step.nullable else [])]

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self._database.execute(sql, list(parameters)).fetchall()

    def chosen(self, where: str, order: Sequence[str] = ()) -> list[Row]:
        """The numbers of the rows."""
        by = f" ORDER BY {', '.join(order)}" if order else ' ORDER BY "_n"'
        return self.rows(f'SELECT "_n" FROM {_source(self.table)}{where}{by}')


def _compared(condition: str) -> dict[str, list[Any]]:
    """What a condition names, and the values that follow it: peers write `"val1"=foo`, where foo must be something."""
    found: dict[str, list[Any]] = {"": []}
    name = ""
    for token in _TOKEN.finditer(condition):
        match token.lastgroup:
            case "text":
                found[name].append(token["text"].replace("''", "'"))
            case "number":
                found[name].append(int(token["number"]))
            case _ if token["quoted"] or token["plain"].lower() not in _WORDS:
                name = token["quoted"] or token["plain"]
                found.setdefault(name, [])
    return {name: values for name, values in found.items() if name}


def _others(known: Sequence[str], key: Sequence[str], compared: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns beside the key, and values for them: those that a condition asks for, and some that it does not."""
    there = {name.lower() for name in (*known, *key)}
    asked = {name.lower(): values for name, values in compared.items()}
    found = {name: asked.get(name.lower(), []) for name in known}
    found |= {name: values for name, values in compared.items() if name.lower() not in there}
    return {n: [*map(str, v), "", "zz"] if _type(v) == "varchar" else [*v, 0, 1, 2, 3] for n, v in found.items()}


def _some(columns: Mapping[str, list[Any]], seed: int) -> list[Any]:
    chance = random.Random(seed)
    return [chance.choice(values) for values in columns.values()]


def _theirs(sql: str, given: Given, condition: str = "") -> str:
    """A peer's SQL for the embedded database."""
    sql = re.sub(r"\bNOT \(", "NOT truth(", _plain(sql, given))
    sql = sql.replace(f"AND {condition}", f"AND ({condition})") if condition else sql
    sql = re.sub(r"OFFSET (\d+) ROWS FETCH NEXT (\d+) ROWS ONLY", r"LIMIT \2 OFFSET \1", sql)
    sql = re.sub(r"FETCH (?:FIRST|NEXT) (\d+) ROWS? ONLY", r"LIMIT \1", sql)
    return re.sub(r"^SELECT TOP (\d+) (.*)", r"SELECT \2 LIMIT \1", sql, flags=re.S)


def _sized(sql: str, word: str, rows: int) -> str:
    """With our number of rows."""
    return re.sub(rf"\b{word} \d+", f"{word} {rows}", sql)


def _bound(sql: str, boundaries: Sequence[Sequence[Any] | None]) -> list[Any]:
    """A peer's parameters: column by column, or all before each column again; NULLs bind nothing."""
    some = [boundary for boundary in boundaries if boundary is not None and "?" in sql]
    flat = [value for boundary in some for value in boundary if value is not None]
    if sql.count("?") == len(flat):
        return flat
    return [v for boundary in some for i in range(len(boundary)) for v in boundary[: i + 1] if v is not None]


def _same(theirs: Any, ours: Any, expected: Mapping[str, Any], sql: str) -> dict[str, Any]:
    return {"sql": expected["sql"] if theirs == ours else f"{sql} gives {ours}, not {theirs}"}


# -- one function per op -------------------------------------------------------------------------------------------


def _chunk_query(given: Given, expected: Given) -> dict[str, Any]:
    condition = given.get("additional_condition") or ""
    ours, low, high = _walk(given, condition), _texts(given.get("position")), _texts(given.get("maximum_key"))
    if "sql" not in expected:
        return {"error": "none", "message": ""}
    high = high if low is not None or "?" in expected["sql"] else None  # peers do not bound the first chunk
    grid = Grid(given, ours)
    unique = set(grid.key) >= {c.name for c in grid.table.columns if c.name in (grid.table.key or grid.key)}
    size = _CHUNK if unique else _ROWS_MAX
    theirs = _sized(_numbered(_theirs(expected["sql"], given, ours.condition)), "LIMIT", size)
    parameters = _bound(theirs, (given.get("position"), given.get("maximum_key")))
    found = [row[-1] for row in grid.rows(theirs, parameters)]
    end = grid.rows(walk.boundary(ours, low, high, size))
    where = walk.within(ours, Span(low, end[0] if end else high))
    mine = [row[0] for row in grid.chosen(where, [step.sql for step in ours.key])]
    if not unique:  # the order of equal keys is nobody's
        found, mine = sorted(found), sorted(mine)
    columns = _projected(_theirs(expected["sql"], given))
    delivered = {c.name for c in _selection(given).columns_of(grid.table)} - {*grid.table.key, *grid.key}
    if columns is not None and columns - {*grid.table.key, *grid.key} != delivered:
        return {"sql": f"delivers {sorted(delivered)}"}
    return _same(found, mine, expected, where)


def _numbered(sql: str) -> str:
    """The rows' numbers last."""
    return re.sub(r"^SELECT (.*?) FROM", r'SELECT \1, "_n" FROM', sql, count=1, flags=re.I)


def _projected(sql: str) -> set[str] | None:
    chosen = re.sub(r"^SELECT (.*?) FROM.*", r"\1", sql, flags=re.I | re.S)
    return None if "*" in chosen else {part.strip().strip('"') for part in chosen.split(",")}


def _bind_params(given: Given, expected: Given) -> dict[str, Any]:
    """We write values where others bind them: each value that they bind stands in our text, cast, beside its column."""
    values = list(zip(given["key_columns"], given["boundary"], strict=True))
    plan = _walk({"nulls_sort_last": True, **given})
    ours = walk.above(plan, _texts(given["boundary"]) or ())
    steps = zip(plan.key, given["boundary"], strict=True)
    written = all(v is None or (step.value(str(v)) in ours and step.sql in ours) for step, v in steps)
    bound = {(column, value) for column, value in expected["params"]}
    return {"params": expected["params"] if written and bound == set(values) else ours}


def _bound_query(given: Given, expected: Given) -> dict[str, Any]:
    ours, boundary = _walk(given), given["boundary"]
    build = walk.above if given["op"] == "lower_bound" else walk.below
    mine = build(ours, _texts(boundary) or (), inclusive=given["inclusive"])
    grid = Grid(given, ours)
    theirs = _theirs(expected["sql"], given)
    found = grid.rows(f'SELECT "_n" FROM {ours.source} WHERE {theirs} ORDER BY "_n"', _bound(theirs, [boundary]))
    return _same(found, grid.chosen(f" WHERE {mine}"), expected, mine)


def _initial(given: Given, expected: Given) -> dict[str, Any]:
    """The parts of an initial snapshot are [low, high), the last one [low, high]."""
    select = _BASE.fullmatch(_plain(given["base_select"], given))
    assert select is not None, given["base_select"]
    source, condition = select.groups("")
    given = {**given, "table": source.replace('"', "")}
    ours, low, high = _walk(given, condition), given["lower"], given["upper"]
    last = given["chunk_index"] == given["total_chunks"] - 1
    bounds = [walk.above(ours, _texts(low) or (), inclusive=True)] if low is not None else []
    bounds += [walk.below(ours, _texts(high) or (), inclusive=last)] if high is not None else []
    bounds += [f"({condition})"] if condition else []
    grid = Grid(given, ours)
    theirs = _only(re.sub(r"\s+ORDER BY .*", "", _theirs(expected["sql"], given, condition), flags=re.I), ["_n"])
    found = [row[0] for row in grid.rows(theirs, _bound(theirs, [low, high]))]
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    mine = [row[0] for row in grid.chosen(where, [step.sql for step in ours.key])]
    return _same(sorted(found), sorted(mine), expected, where)


def _next_boundary(given: Given, expected: Given) -> dict[str, Any]:
    """Theirs is the first key of the next chunk, counted from the key that begins this one; ours the last of this.
    What they count with the key that begins, if the condition takes it, we count without."""
    condition = given.get("additional_condition") or ""
    ours, low = _walk(given, condition), given["lower"]
    grid = Grid(given, ours)
    theirs = _sized(_theirs(expected["sql"], given, ours.condition), "OFFSET", _CHUNK)
    counted = low is not None and _begins(grid, ours, _texts(low) or ())
    mine = walk.boundary(ours, _texts(low), None, _CHUNK if counted else _CHUNK + 1)
    found = [_texts(row) for row in grid.rows(theirs, _bound(theirs, [low]))]
    return _same(found, [tuple(row) for row in grid.rows(mine.replace("::text", "::varchar"))], expected, mine)


def _begins(grid: Grid, ours: Walk, low: Key) -> bool:
    """Whether there is a row at `low`."""
    at = [walk.above(ours, low, inclusive=True), walk.below(ours, low), f"({ours.condition or 'TRUE'})"]
    return bool(grid.chosen(f" WHERE {' AND '.join(at)}"))


def _max_key(given: Given, expected: Given) -> dict[str, Any]:
    condition = given.get("additional_condition") or ""
    ours = _walk(given, condition)
    grid = Grid(given, ours)
    mine = grid.rows(walk.maximum(ours).replace("::text", "::varchar"))
    theirs = grid.rows(_only(_theirs(expected["sql"], given), grid.key))
    return _same([_texts(row) for row in theirs], mine, expected, walk.maximum(ours))


def _only(sql: str, names: Sequence[str]) -> str:
    chosen = ", ".join(f'"{name}"' for name in names)
    return re.sub(r"^SELECT .*? FROM", f"SELECT {chosen} FROM", sql, count=1, flags=re.I)


def _rowid_prefetch(given: Given, expected: Given) -> dict[str, Any]:
    """A place is a key of one column that every row has. It is a text, here as there."""
    condition, name = given.get("additional_condition") or "", given["pseudo_column"]
    table = _table(given)
    ours = Walk(_source(table), (Step(name, "varchar"),), condition)
    database, rows = duckdb.connect(), int(given["limit"])
    extra = _others([], [name], _compared(condition))
    fields = ", ".join([f'"{name}" VARCHAR', *(f'"{column}" {_type(told)}' for column, told in extra.items())])
    _room(database, table.schema)
    database.execute(f"CREATE TABLE {ours.source} ({fields})")
    low = given.get("position")
    places = [f"{(low or ['A'])[0]}{n:05d}" for n in range(rows * 3)] + ["", *(low or ())]
    marks = ", ".join("?" * (1 + len(extra)))
    values = [(place, *_some(extra, n)) for n, place in enumerate(places)]
    database.executemany(f"INSERT INTO {ours.source} VALUES ({marks})", values)
    theirs = re.sub(rf"\b{name}\b", f'"{name}"', _theirs(expected["sql"], {}).replace(f'"{name}"', name))
    mine = walk.boundary(ours, _texts(low), None, rows)
    both = [database.execute(sql, p).fetchall() for sql, p in ((theirs, low or []), (mine, []))]
    return _same(*both, expected, mine)


def _rowid_columns(given: Given, _: Given) -> dict[str, Any]:
    """A walk that names no column goes by the place of the rows, also where there is a key. In which order the rows of
    a chunk come matters to nobody, so it is not answered."""
    table = _table({"key_columns": given["primary_key"], **given})
    return {"range_columns": [step.name for step in oracle_walk.plan(Scan(table, ()), table).key]}


def _rowid_end(given: Given, _: Given) -> dict[str, Any]:
    told = given["prefetched"]
    found = [_texts(told if isinstance(told, list) else [told]) or ()] if told else []
    ends = walk.ends(found, not found, _texts(given["maximum_key"]) or ())
    return {"chunk_end": list(ends[0])}


_OPS = {
    "chunk_query": _chunk_query,
    "bind_params": _bind_params,
    "lower_bound": _bound_query,
    "upper_bound": _bound_query,
    "initial_snapshot_chunk_query": _initial,
    "next_boundary_query": _next_boundary,
    "max_key_query": _max_key,
    "rowid_prefetch_query": _rowid_prefetch,
    "rowid_columns": _rowid_columns,
    "rowid_chunk_end": _rowid_end,
}
