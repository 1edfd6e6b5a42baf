"""``fedcluster warm-up``: it runs what fits run, says which, and how many kernels that compiled."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typed
from sklearn.base import clone

from fedcluster import FederatedFuzzyCMeans, FederatedGaussianMixture, FederatedKMeans
from fedcluster.algorithms import FedAvg
from fedcluster.engines import warming as once
from fedcluster.kernels import iteration, runtime
from fedcluster.kernels.runtime import announcer, compiled_mark
from fedcluster_app.cli import _warming as warming


@pytest.fixture(autouse=True)
def mark(monkeypatch, tmp_path):
    """The mark that the kernels of a machine of its own would have."""
    path = tmp_path / "cache" / "all.compiled"
    for module in (warming, once):
        monkeypatch.setattr(module, "compiled_mark", lambda: path)
    return path


@pytest.fixture
def jobs(monkeypatch):
    """Jobs that do nothing but compile so many kernels, by their names."""
    made: dict[str, int] = {}

    def job(name):
        announcer.compiled += made[name]

    def every():
        return ((name, lambda name=name: job(name)) for name in made)

    monkeypatch.setattr(announcer, "compiled", 0)
    monkeypatch.setattr(warming, "jobs", every)
    return made


def test_every_job_is_done_and_told_of(jobs):
    jobs |= {"a": 2, "b": 2}
    said: list[str] = []
    assert warming.warmed(said.append) == 4
    assert said == ["compiling kernels, 1 of 2: a", "compiling kernels, 2 of 2: b"]


@pytest.mark.parametrize(
    ("compiled", "line"), [(3, "Compiled 3 kernels in 0 seconds."), (0, "No ")]
)
def test_it_says_how_many_it_compiled(jobs, compiled, line):
    jobs["a"] = compiled
    assert typed.run("warm-up").stdout.startswith(line)
    assert typed.invoke("warm-up --quiet") == (0, "")


def test_the_jobs_are_small_fits_of_every_kind():
    """The fastest of them run here; `select_k` and the wide ones take seconds each."""
    jobs = dict(warming.jobs())
    assert len(jobs) > 20
    few = [f"{name} of few rows in float32" for name in ("fkm", "kfed")]
    for name in ("k-means", *few, "mixtures", "groups of rows"):
        jobs[name]()


def test_loops_are_compiled_once_they_would_have_paid_off(monkeypatch, tmp_path):
    """At once on a machine that is warm, or where they paid off before."""
    marks = {what: tmp_path / what for what in ("all", "loops")}
    monkeypatch.setattr(runtime, "compiled_mark", marks.__getitem__)
    monkeypatch.setattr(runtime, "LOOPS", 5)
    loops = runtime._CompiledLoops()  # noqa: SLF001
    assert [loops.pay_off(), loops.pay_off(2), loops.pay_off(2)] == [False] * 3
    assert not marks["loops"].exists()
    assert loops.pay_off()
    assert marks["loops"].exists()
    assert runtime._CompiledLoops().pay_off()  # noqa: SLF001
    marks["loops"].unlink()
    marks["all"].touch()
    assert runtime._CompiledLoops().pay_off()  # noqa: SLF001


FITS: dict[str, Any] = {
    **{name: FederatedKMeans(3, algorithm=name) for name in ("auto", "lloyd", "fkm", "kfed")},
    "fedavg": FederatedKMeans(3, algorithm=FedAvg(3)),
    "from sums": FederatedKMeans(3, sums_only=True),
    "trimmed": FederatedKMeans(3, trim=0.1),
    "cosine": FederatedKMeans(3, metric="cosine"),
    **{f"m = {m}": FederatedFuzzyCMeans(3, m=m) for m in (2, 2.0, 1.7)},
    **{kind: FederatedGaussianMixture(3, covariance_type=kind) for kind in ("full", "diag")},
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [60, 6000])
@pytest.mark.parametrize("name", FITS)
def test_no_fit_compiles_after_it(name, n, dtype):
    if not compiled_mark().exists():
        pytest.skip("kernels are not compiled on this machine: make warm")
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, 4)) + 6 * rng.integers(3, size=(n, 1))).astype(dtype)
    before = announcer.compiled
    model = clone(FITS[name]).set_params(random_state=0).fit(X, sites=np.arange(n) % 3)
    model.predict(X)
    assert announcer.compiled == before


@pytest.mark.thorough
def test_an_account_without_any_folder_for_kernels_is_told_how_to_name_one():
    """numba raises its own error as the kernels are imported, here for want of another way."""
    env = {**os.environ, "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    env.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-m", "fedcluster_app", "warm-up"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True)
    [line] = ran.stderr.splitlines()
    assert (ran.returncode, "set NUMBA_CACHE_DIR to a folder of yours" in line) == (2, True), line


@pytest.fixture
def began(monkeypatch, jobs):
    """The commands that were begun, and done here."""
    commands: list[list[str]] = []

    def runs(command, **_options):
        commands.append(command)
        warming.warmed(lambda _what: None)

    monkeypatch.setattr(subprocess, "run", runs)
    return commands


def test_a_site_compiles_once_on_a_machine(began, mark):
    said: list[str] = []
    for _ in range(2):
        once.ensure_warmed(said.append)
    assert began == [[sys.executable, "-P", "-m", "fedcluster_app", "warm-up", "--quiet"]]
    assert mark.exists()
    assert said == ["compiling numerical kernels, once on this machine: about two minutes"]


def test_one_who_waited_for_another_does_not_compile_again(began, mark):
    def other_has_done_it(_what):
        mark.parent.mkdir()
        mark.touch()

    once.ensure_warmed(other_has_done_it)
    assert began == []


def test_a_cache_that_cannot_be_written_stops_nobody(began, mark):
    mark.parent.touch()
    once.ensure_warmed(lambda _what: None)
    assert len(began) == 1
    assert warming.warmed(lambda _what: None) == announcer.compiled == 0


def test_the_mark_is_beside_the_kernels():
    kernels = [each for each in vars(iteration).values() if hasattr(each, "stats")]
    folders = {each.stats.cache_path for each in kernels} - {None}  # parts of others have none
    assert set(map(Path, folders)) == {compiled_mark().parent}


CALLS_A_KERNEL = """
import sys, tempfile
import numba.core.caching as caching, numpy as np

anywhere, (own, shared) = tempfile.TemporaryFile, sys.argv[1:]

def only_in_own(dir):
    if not str(dir).startswith(own):
        raise PermissionError(dir)
    return anywhere(dir=dir)

caching.tempfile.TemporaryFile = only_in_own
from fedcluster.kernels.runtime import SHARED, announcer, compiled_mark
from fedcluster.kernels.iteration import column_variance

SHARED[:] = [folder for folder in SHARED if str(folder).startswith(shared)]  # not this checkout's
column_variance(np.eye(2))
print(announcer.compiled, compiled_mark())
"""


@pytest.mark.thorough
def test_what_one_account_compiled_serves_another_that_may_not_write_there(tmp_path):
    """Before, every account of a machine compiled all kernels for itself."""
    shared, home = tmp_path / "shared", tmp_path / "home"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(shared), "XDG_CACHE_HOME": str(home)}

    def called(own):
        command = [sys.executable, "-c", CALLS_A_KERNEL, own, shared]
        return subprocess.check_output(command, env=env, text=True).split()

    compiled, mark = called(shared)
    assert compiled == "1"
    compiled, of_own = called(home)
    assert (compiled, Path(of_own).name) == ("0", Path(mark).name)
    assert of_own.startswith(str(home))
    assert not list(home.rglob("*.nbc"))
    Path(mark).touch()
    assert called(home) == ["0", mark]
