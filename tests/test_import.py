"""The front door: quick to open, and everything that it names is there."""

import subprocess
import sys

import fedcluster

SLOW = ("numba", "pandas", "sklearn")


def test_importing_fedcluster_loads_no_slow_library():
    """A command that only prints its help need not wait for numba, pandas and scikit-learn."""
    code = f"import sys, fedcluster; print(*sys.modules.keys() & set({SLOW!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_public_names_are_sorted_and_resolve():
    assert list(fedcluster.__all__) == sorted(fedcluster.__all__)
    for name in fedcluster.__all__:
        assert hasattr(fedcluster, name), f"fedcluster.__all__ names {name!r}, which is not there"
