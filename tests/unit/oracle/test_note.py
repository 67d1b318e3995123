"""Notes: what an offset says, and what is written beside each commit."""

from __future__ import annotations

import json

from tidelog.connectors.oracle import note, offset, position, scn
from tidelog.connectors.oracle.note import Inside, Note, Notes

XID = position.xid_of("0a00140012345678")
WHOLE = {
    "scn": "100",
    "commit_scn": "120:1:0a00140012345678,110:2:",
    "snapshot_scn": "90",
    "snapshot_pending_tx": "0a00140012345678:80,0b00140012345678:85",
    "txId": "0a00140012345678",
    "txSeq": 3,
}


def test_a_document_comes_back_as_it_was() -> None:
    assert note.read(WHOLE).document() == WHOLE
    assert note.parse(json.dumps(WHOLE)) == note.read(WHOLE)
    assert offset.DOCUMENT.problems(WHOLE) == ()


def test_keys_of_our_own_are_not_the_connectors() -> None:
    assert note.read({**WHOLE, "tidelog_position": 1}) == note.read(WHOLE)


def test_the_log_is_read_from_the_oldest_that_is_open() -> None:
    assert note.read(WHOLE).mine_from == 79
    assert Note(scn=70).mine_from == 70
    assert Note().mine_from is None


def test_delivery_goes_on_at_the_thread_that_is_furthest_behind() -> None:
    assert note.position_of(note.read(WHOLE)) == position.of_scn(110)


def test_after_a_first_snapshot_it_goes_on_there() -> None:
    first = {"scn": "79", "commit_scn": None, "snapshot_scn": "90", "snapshot_pending_tx": "0a00140012345678:80"}
    assert note.position_of(note.read(first)) == position.of_scn(90)
    assert note.position_of(note.read({"scn": "100"})) == position.of_scn(100)


def test_what_is_written_beside_commits_is_a_document() -> None:
    notes = Notes(Note(scn=79, snapshot_scn=90, pending={XID: 80}))
    before = json.loads(notes.text(79, "", None))
    assert before == {"scn": "79", "commit_scn": None, "snapshot_scn": "90", "snapshot_pending_tx": f"{HEX}:80"}
    after = json.loads(notes.text(95, f"95:1:{HEX}", None))
    assert after == {"scn": "95", "commit_scn": f"95:1:{HEX}", "snapshot_scn": "90"}
    inside = json.loads(notes.text(96, f"95:1:{HEX}", Inside(XID, 4)))
    assert (inside["txId"], inside["txSeq"]) == (HEX, 4)
    assert json.loads(Notes(Note()).text(5, "", None)) == {"scn": "5", "commit_scn": None}
    assert note.read(after).commit_scn == scn.parse(f"95:1:{HEX}")


HEX = "0a00140012345678"
