"""How kernels are compiled: when, and from what."""

import logging
import subprocess
import sys
from typing import Any

import pytest
from numba import njit
from numba.core import types
from numba.core.registry import cpu_target

from fedcluster.kernels import _sweep as sweep
from fedcluster.kernels import runtime as native


def test_the_first_compilation_is_announced_and_each_is_counted(caplog, monkeypatch):
    def double(x):
        return 2 * x

    double.__module__ = "fedcluster.kernels.test"
    monkeypatch.setattr(native.announcer, "has_spoken", False)
    monkeypatch.setattr(native.announcer, "compiled", 0)
    with caplog.at_level(logging.INFO, "fedcluster"):
        kernel = njit(double)
        assert (kernel(1), kernel(1.5)) == (2, 3)
        assert njit(lambda x: x)(1) == 1  # not ours
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert native.announcer.compiled == 2


def test_a_change_of_any_kernel_outdates_what_was_compiled(monkeypatch):
    """numba compares the function's own file only, and would call old code from new."""

    def key() -> Any:
        small: Any = sweep.run_in_one_call
        codegen = cpu_target.target_context.codegen()
        return small._cache._index_key((types.int64,), codegen)  # noqa: SLF001

    before = key()
    assert key() == before
    monkeypatch.setattr(native, "SOURCES", "others")
    assert key() != before


def test_files_are_named_by_what_they_hold(tmp_path):
    """So a process that compiles at the same time cannot leave other code under a name."""
    one, other = (native._Files(str(tmp_path), "f-1.py311") for _ in range(2))  # noqa: SLF001
    integers, floats = (((types.int64,), ()), "sources"), (((types.float64,), ()), "sources")
    assert one.load(integers) is None
    one.save(integers, "of integers")
    other.save(floats, "of floats")  # it has not seen the one before
    assert (one.load(floats), other.load(integers)) == ("of floats", "of integers")
    assert len(list(tmp_path.iterdir())) == 2


def test_what_other_sources_made_is_removed(tmp_path):
    files = native._Files(str(tmp_path), "f-1.py311")  # noqa: SLF001
    beside = native._Files(str(tmp_path), "f-11.py311")  # noqa: SLF001
    for each, sources in ((files, "old"), (beside, "old"), (files, "new")):
        each.save((((types.int64,), ()), sources), sources)
    assert files.load((((types.int64,), ()), "old")) is None
    assert files.load((((types.int64,), ()), "new")) == "new"
    assert beside.load((((types.int64,), ()), "old")) == "old"


@pytest.mark.thorough
def test_another_process_loads_what_was_compiled(tmp_path):
    """From its first call on; nothing is compiled twice."""
    code = (
        "import numpy as np; from fedcluster.kernels import kmeans_plusplus;"
        "from fedcluster.kernels.runtime import announcer;"
        "kmeans_plusplus(np.eye(9), 3, rng=np.random.default_rng(0));"
        "print(announcer.compiled)"
    )
    done = [subprocess.run([sys.executable, "-c", code], capture_output=True) for _ in range(2)]
    assert done[1].stdout == b"0\n", done[1].stderr
