"""Stages that a stream passes through, each on threads of its own; what comes keeps its order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
AHEAD = 2
"""Chunks that each stage, decoding and turning columns into rows, has done before it is asked."""


def prefetch(parts: Iterator[T]) -> Iterator[T]:
    """The same, read by a thread of its own before they are asked for."""
    with ThreadPoolExecutor(1, "fedcluster-reading") as thread:
        coming = deque(thread.submit(next, parts, None) for _ in range(AHEAD))
        while (part := coming.popleft().result()) is not None:
            coming.append(thread.submit(next, parts, None))
            yield part
            del part  # the memory of the next one


def in_order(work: Callable[[T], R], parts: Iterable[T], n_threads: int) -> Iterator[R]:
    """``work(part)`` of each part, several at a time, in the order of the parts.

    An error comes where it would have come without threads; what follows is not begun.
    """
    if n_threads == 1:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(n_threads, "fedcluster-working") as threads:
        coming: deque[Future[R]] = deque()
        try:
            for part in parts:
                coming.append(threads.submit(work, part))
                if len(coming) > n_threads:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for one in coming:
                one.cancel()
