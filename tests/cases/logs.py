"""Cases of log files: which are collected, whether they are complete, and which a mining session takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.connectors.oracle.logs import consistency, files
from tidelog.connectors.oracle.logs.files import SCN_MAX, LogFile
from tidelog.connectors.oracle.logs.gathering import not_found
from tidelog.connectors.oracle.logs.selector import Selector
from tidelog.connectors.oracle.logs.threads import Thread
from tidelog.errors import TidelogError

Given = Mapping[str, Any]

DECIDED_AGAINST: dict[str, str] = {}
"""`file/name` of a case, and why we answer differently."""


def run(file: str, case: Given) -> object:
    if file == "oracle_log_session_selector":
        return _selected(case)
    return _collection(case["input"], case["expected"])


def _collection(given: Given, expected: Any) -> object:
    match given["op"]:
        case "consistent":
            return _consistent(given, _files(given["logs"]))
        case "deduplicate_then_consistent":
            found = files.deduplicated(_files(given["archive_logs"]), _files(given["redo_logs"]))
            return _consistent(given, found)
        case "collect":
            return {"names": [f.name for f in files.collected(_files(given["view_rows"]), given["offset_scn"])]}
        case "scn_in_archive_logs":
            return consistency.archived_everywhere(given["scn"], _threads(given), _files(given["logs"]))
        case "merge_by_destination":
            by_name = {name: _files(logs, archived=True) for name, logs in given["logs"].items()}
            return [f.name for f in files.merged(by_name, given["destinations"])]
        case "get_logs":
            return _not_found(given, expected)
        case other:
            raise AssertionError(f"unknown op {other}")


def _consistent(given: Given, found: Sequence[LogFile]) -> bool:
    known = given.get("all_archive_logs_by_thread_desc", {})

    def archives(thread: int) -> list[LogFile]:
        return _files(known.get(str(thread), []))

    return consistency.trouble(given["start_scn"], _threads(given), found, archives) is None


def _not_found(given: Given, expected: Given) -> object:
    assert not given["logs"]
    assert not given["retries"]
    deleted = _files(given["deleted_archive_logs"], archived=True)
    said = str(not_found(given["offset_scn"], deleted))
    wanted = expected["message_contains"]
    return {"error": "log-not-found", "message_contains": [words for words in wanted if words in said]}


def _files(logs: Sequence[Given], *, archived: bool = False) -> list[LogFile]:
    return [
        LogFile(
            name=log["name"],
            first=log["first"],
            next=SCN_MAX if log["next"] is None else log["next"],
            sequence=log["seq"],
            thread=log["thread"],
            archived=archived or log["type"] == "ARCHIVE",
            current=log.get("current", False),
            bytes=log.get("bytes", 0),
        )
        for log in logs
    ]


def _threads(given: Given) -> list[Thread]:
    return [
        Thread(
            number=thread["thread"],
            open=thread["status"] == "OPEN",
            enabled=thread["enabled"],
            enable_scn=thread["enabled_scn"],
            disable_scn=thread["disabled_scn"],
            checkpoint_scn=thread["checkpoint_scn"],
            last_redo_scn=thread["last_redo_scn"],
        )
        for thread in given["threads"]
    ]


def _selected(case: Given) -> object:
    """Answers in the shape of what is expected of each call: some only prepare the next one."""
    given = case["input"]
    selector = Selector(given["minimum_logs_per_thread"], given["redo_log_bytes"])
    answers: list[Any] = []
    for call, expected in zip(given["calls"], case["expected"], strict=True):
        threads = [Thread(number, status == "OPEN") for number, status in call["threads"]]
        upper = given["default_upper"] if call["upper"] is None else call["upper"]
        try:
            chosen, selector = selector.choose(_files(call["logs"]), threads)
        except TidelogError:
            answers.append({"error": True})
            continue
        told = {"names": [f.name for f in chosen.files], "upper": _told(chosen.upper(upper), upper, expected)}
        answers.append(None if expected is None else {name: told.get(name) for name in expected})
    return answers


def _told(answer: int, upper: int, expected: Given | None) -> object:
    return "unchanged" if expected and expected.get("upper") == "unchanged" and answer == upper else answer
