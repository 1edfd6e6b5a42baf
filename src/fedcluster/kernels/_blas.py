"""BLAS on one thread, while a site answers.

Its last bits depend on the number of its threads; and these wait for each other in busy loops, and
on a machine that others use take ten times as long.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = Lock()
_inside: list[Any] = []  # one entry for each caller; the first holds what to restore


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Keep BLAS to one thread until the last of several callers at once is through."""
    with _lock:
        _inside.append(None if _inside else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _inside[0]
            _inside.pop()
            if not _inside:
                limit.restore_original_limits()


@cache
def _controller() -> Any:
    return ThreadpoolController()
