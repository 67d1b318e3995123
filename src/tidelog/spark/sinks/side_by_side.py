"""Work on several tables at the same time.

The threads are daemons: one that waits for a storage which does not answer must not keep the process from ending.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_all(work: Callable[[Item], Result], items: Sequence[Item], parallel: int) -> list[Result]:
    """The results in the order of the items. The first error is raised once the work has ended on all of them."""
    if len(items) < 2 or parallel < 2:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    waiting: queue.SimpleQueue[tuple[int, Item]] = queue.SimpleQueue()
    for numbered in enumerate(items):
        waiting.put(numbered)

    def work_off() -> None:
        while True:
            try:
                number, item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[number] = work(item)
            except BaseException as exc:  # noqa: BLE001  raised below, in the caller's thread
                errors.append(exc)

    threads = [
        threading.Thread(target=work_off, name=f"tidelog-sink-{number}", daemon=True)
        for number in range(min(parallel, len(items)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
