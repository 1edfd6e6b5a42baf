"""Times are compared under the same conditions, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_limits

from benchmarks.fair import conditions

ASKED = """
import os
from benchmarks.fair import conditions, start
start(1)
import sklearn.cluster
print({name: os.environ[name] for name in os.environ if name[:3] in {"OMP", "OPE", "FED"}})
print(conditions(1))
"""


@pytest.mark.thorough
def test_a_script_starts_again_without_what_slows_some_libraries() -> None:
    environ = os.environ | {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "7"}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env=environ, capture_output=True, text=True, check=True
    )
    found, line = done.stdout.splitlines()
    assert "CORETYPE" not in found
    assert "'OMP_NUM_THREADS': '1'" in found
    assert "'FEDCLUSTER_NUM_THREADS': '1'" in found
    assert line.startswith("1 threads for all; ")


def test_other_threads_are_refused(monkeypatch) -> None:
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", "2")
    with threadpool_limits(1), pytest.raises(SystemExit, match=r"not all on 2 threads.*: 1"):
        conditions(2)
