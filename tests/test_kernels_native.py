"""How kernels are compiled: when, and from what."""

import logging
from typing import Any

from numba import njit
from numba.core import types
from numba.core.registry import cpu_target

from fedcluster.kernels import _runtime as native
from fedcluster.kernels import _sweep as sweep


def test_the_first_compilation_is_announced(caplog, monkeypatch):
    def double(x):
        return 2 * x

    double.__module__ = "fedcluster.kernels.test"
    monkeypatch.setattr(native.announcer, "has_spoken", False)
    with caplog.at_level(logging.INFO, "fedcluster"):
        assert njit(double)(1) == 2
        assert njit(double)(1.5) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_change_of_any_kernel_outdates_what_was_compiled(monkeypatch):
    """numba compares the function's own file only, and would call old code from new."""

    def key() -> Any:
        small: Any = sweep.sweep_small
        codegen = cpu_target.target_context.codegen()
        return small._cache._index_key((types.int64,), codegen)  # noqa: SLF001

    before = key()
    assert key() == before
    monkeypatch.setattr(native, "SOURCES", "others")
    assert key() != before


def test_what_is_compiled_is_counted(monkeypatch):
    def triple(x):
        return 3 * x

    triple.__module__ = "fedcluster.kernels.test"
    monkeypatch.setattr(native.announcer, "compiled", 0)
    assert njit(triple)(1) == 3
    assert njit(lambda x: x)(1) == 1  # not ours
    assert native.announcer.compiled == 1
