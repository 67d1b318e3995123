"""One redo statement at a time: the forms that LogMiner writes."""

from __future__ import annotations

import pytest

from tidelog.connectors.oracle.redo import dml
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Sql
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table

TABLE = Table(1, "S", "T", (Column("ID", "NUMBER"), Column("NAME", "VARCHAR2", 100), Column("DOC", "CLOB")), ("ID",))


def test_an_insert_has_all_columns_and_no_old_row() -> None:
    found = dml.parse("""insert into "S"."T"("ID","NAME") values ('1','O''Neil');""", TABLE)
    assert (found.op, found.before) == (Op.CREATE, None)
    assert found.after == {"ID": "1", "NAME": "O'Neil", "DOC": None}


def test_an_update_keeps_what_it_does_not_set() -> None:
    found = dml.parse("""update "S"."T" set "NAME" = NULL where "ID" = '1' and "NAME" = 'a';""", TABLE)
    assert found.before == {"ID": "1", "NAME": "a", "DOC": UNAVAILABLE}
    assert found.after == {"ID": "1", "NAME": None, "DOC": UNAVAILABLE}


def test_columns_of_oracles_own_are_no_columns() -> None:
    sql = """insert into "S"."T"("ID","SYS_NC00002$","NAME","ORA_ARCHIVE_STATE") values ('1','x','a','0');"""
    assert dml.parse(sql, TABLE).after == {"ID": "1", "NAME": "a", "DOC": None}
    sql = """update "S"."T" set "NAME" = 'b' where "ID" = '1' and "SYS_STSJC$" IS NULL;"""
    assert dml.parse(sql, TABLE).before == {"ID": "1", "NAME": None, "DOC": UNAVAILABLE}
    made = Table(1, "S", "T", (Column("ID", "NUMBER"), Column("SYS_MINE$", "VARCHAR2")))
    assert dml.parse("""insert into "S"."T"("SYS_MINE$") values ('x');""", made).after == {"ID": None, "SYS_MINE$": "x"}


def test_a_large_object_that_is_set_is_known_even_if_null() -> None:
    found = dml.parse("""update "S"."T" set "DOC" = NULL where "ID" = '1'""", TABLE)
    assert found.before is not None
    assert found.after is not None
    assert (found.before["DOC"], found.after["DOC"]) == (UNAVAILABLE, None)


def test_a_delete_has_only_an_old_row() -> None:
    found = dml.parse("""delete from "S"."T" a where a."ID" = 1 and a."NAME" IS NULL;""", TABLE)
    assert found.before == {"ID": "1", "NAME": None, "DOC": UNAVAILABLE}
    assert found.after is None
    assert isinstance(found.before["ID"], Sql)


def test_a_literal_that_looks_like_an_expression_is_told_from_one() -> None:
    sql = """insert into "S"."T" ("ID","NAME") values (TO_NUMBER('1'),'TO_NUMBER(''1'')')"""
    found = dml.parse(sql, TABLE).after
    assert found is not None
    assert (found["ID"], found["NAME"]) == ("TO_NUMBER('1')", "TO_NUMBER('1')")
    assert [isinstance(found[name], Sql) for name in ("ID", "NAME")] == [True, False]


@pytest.mark.parametrize(
    "value",
    [
        "TO_DATE('2020-02-01 00:00:00', 'YYYY-MM-DD HH24:MI:SS')",
        "UNISTR('a,b) and') || UNISTR(''')')",
        "'a' || 'b'",
        "/* JSON */ EMPTY_BLOB()",
        "HEXTORAW('0a')",
        "1.5E+000",
    ],
)
def test_an_expression_stays_what_it_is(value: str) -> None:
    inserted = dml.parse(f"""insert into "S"."T"("ID","NAME") values ('1',{value});""", TABLE).after
    updated = dml.parse(f"""update "S"."T" set "NAME" = {value} where "ID" = '1';""", TABLE).after
    deleted = dml.parse(f"""delete from "S"."T" where "NAME" = {value} and "ID" = '1';""", TABLE).before
    for row in (inserted, updated, deleted):
        assert row is not None
        assert row["NAME"] == value
        assert row["ID"] == "1"


def test_words_of_sql_inside_literals_mean_nothing() -> None:
    text = """a, "ID" = ''2'' where "ID" = ''3'' and (b; """
    found = dml.parse(f"""update "S"."T" set "NAME" = '{text}' where "ID" = '1' and "NAME" = '{text}';""", TABLE)
    assert found.after is not None
    assert found.after["NAME"] == text.replace("''", "'")
    assert found.after["ID"] == "1"


def test_columns_of_oracles_own_are_left_out() -> None:
    sql = """insert into "S"."T"("ID","ORA_ARCHIVE_STATE") values ('1','0');"""
    assert dml.parse(sql, TABLE).after == {"ID": "1", "NAME": None, "DOC": None}
    sql = """delete from "S"."T" where "ID" = '1' and ROWID = 'AAAR/aAANAAAAPtAAA';"""
    assert dml.parse(sql, TABLE).before == {"ID": "1", "NAME": None, "DOC": UNAVAILABLE}


def test_numbered_columns_are_those_of_the_table() -> None:
    sql = """insert into "S"."T"("COL 2","COL 1") values (HEXTORAW('41'),HEXTORAW('c102'));"""
    assert dml.parse(sql, TABLE).after == {"ID": "HEXTORAW('c102')", "NAME": "HEXTORAW('41')", "DOC": None}


def test_apostrophes_that_are_not_doubled() -> None:
    sql = """update "S"."T" set "NAME" = 'it's, or 'was', "DOC" = ''x'' where "ID" = '1';"""
    found = dml.parse(sql, TABLE, relaxed=True).after
    assert found == {"ID": "1", "NAME": "it's, or 'was", "DOC": "'x'"}
    found = dml.parse("""insert into "S"."T"("ID","NAME") values ('1','it's d''or');""", TABLE, relaxed=True).after
    assert found == {"ID": "1", "NAME": "it's d'or", "DOC": None}
    with pytest.raises(UnsupportedChange, match="cannot be read"):
        dml.parse(sql, TABLE)


@pytest.mark.parametrize("text", ["it's (a')b)", "a', b", "')", "a',\tb", "');", "O'Neil, (Sr.)", "a');b'", ", NULLS'"])
@pytest.mark.parametrize("rest", ["", ",'z'", ",NULL", ", NULL", ",EMPTY_CLOB()", ", 'z'"])
@pytest.mark.parametrize("end", [");", ")", ") ; \n"])
def test_relaxed_literals_end_where_a_value_or_the_statement_can(text: str, rest: str, end: str) -> None:
    names = '"ID","NAME","DOC"' if rest else '"ID","NAME"'
    sql = f"""insert into "S"."T"({names}) values ('1','{text}'{rest}{end}"""
    found = dml.parse(sql, TABLE, relaxed=True).after
    assert found is not None
    assert (found["ID"], found["NAME"]) == ("1", text)


def test_a_relaxed_literal_that_could_be_two_is_refused() -> None:
    with pytest.raises(UnsupportedChange, match="as many values"):
        dml.parse("""insert into "S"."T"("ID","NAME") values ('1','a','b');""", TABLE, relaxed=True)


@pytest.mark.parametrize("values", ["( '1' , 'x' )", "(\t'1',\n 'x');", "('1', 'x' ) ;"])
def test_blanks_around_values_mean_nothing(values: str) -> None:
    found = dml.parse(f"""insert into "S"."T" ( "ID" , "NAME" ) values {values}""", TABLE)
    assert found.after == {"ID": "1", "NAME": "x", "DOC": None}
    nothing = dml.parse("""insert into "S"."T"("ID","NAME") values ( '1' , NULL );""", TABLE)
    assert nothing.after == {"ID": "1", "NAME": None, "DOC": None}


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("", "no insert"),
        ("select 1 from dual", "no insert"),
        ("INSERT INTO T VALUES (1)", "no insert"),
        ("""insert into "S"."T"("ID") values ('1','2');""", "as many values"),
        ("""insert into "S"."T"("ID") values ('1""", "does not end"),
        ("""insert into "S"."T" values ('1');""", "list of columns"),
        ("""insert into "S"."T"(ID) values ('1');""", "list of columns"),
        ("""insert into "S"."T"("ID");""", "values are missing"),
        ("""insert into "S"."T"("ID") values ();""", "value is missing"),
        ("""update "S"."T" where "ID" = '1';""", "sets"),
        ("""update "S"."T" set "ID" IS NULL where "ID" = '1';""", "sets"),
        ("""delete from "S"."T" where ID = '1';""", "name"),
        ("""delete from "S"."T" order by 1;""", "condition"),
        ("""delete from "S"."T" where "OTHER" = '1';""", "OTHER"),
        ("""delete from "S"."T" where "COL 4" = '1';""", "COL 4"),
        ("""delete from "S"."T" where "ID" IS NULL or so""", "condition"),
    ],
)
def test_what_is_no_such_statement_is_refused(sql: str, why: str) -> None:
    with pytest.raises(UnsupportedChange, match=why):
        dml.parse(sql, TABLE)
