"""The live events: told to all, and nobody slow holds anything back."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tidelog.errors import TransientError
from tidelog.server import events
from tidelog.server.events import Events


def test_events_come_in_order_and_from_any_thread() -> None:
    async def heard() -> list[str]:
        told = Events()
        listening = told.listen()
        found = [await anext(listening)]
        threading.Thread(target=lambda: [told.tell("status", {"n": n}) for n in range(3)]).start()
        found += [await anext(listening) for _ in range(3)]
        told.end()
        return found + [text async for text in listening]

    assert asyncio.run(heard()) == [
        ": listening\n\n",
        *(f'event: status\ndata: {{"n": {n}}}\n\n' for n in range(3)),
    ]


def test_a_slow_listener_is_let_go_and_the_others_are_not() -> None:
    async def lived() -> tuple[int, int]:
        told = Events()
        slow, quick = told.listen(), told.listen()
        await anext(slow), await anext(quick)
        count = 0
        for n in range(1000):
            told.tell("metrics", {"n": n})
            await anext(quick)
            count += 1
        told.end()
        return len([text async for text in slow]), count

    late, all_of_them = asyncio.run(lived())
    assert late < 1000 == all_of_them


def test_a_quiet_time_shows_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_HEARTBEAT_S", 0.01)

    async def heard() -> str:
        listening = Events().listen()
        await anext(listening)
        return await anext(listening)

    assert asyncio.run(heard()).startswith(":")


def test_there_is_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_LISTENERS_MAX", 1)

    async def full() -> None:
        told = Events()
        told.require_room()
        listening = told.listen()
        await anext(listening)
        with pytest.raises(TransientError):
            told.require_room()
        await listening.aclose()  # type: ignore[attr-defined]
        told.require_room()

    asyncio.run(full())
