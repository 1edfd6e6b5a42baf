"""``fedcluster warm-up``: it runs what fits run, says which, and how many kernels that compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fedcluster.cli import _warming as warming
from fedcluster.cli import app
from fedcluster.kernels._runtime import announcer


def run(*arguments: str) -> Any:
    ran = CliRunner().invoke(app, ["warm-up", *arguments])
    assert ran.exit_code == 0, ran.output
    return ran


def test_every_job_is_done_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def compiles(name: str) -> Any:
        def job() -> None:
            done.append(name)
            announcer.compiled += 2

        return name, job

    monkeypatch.setattr(announcer, "compiled", 0)
    monkeypatch.setattr(warming, "jobs", lambda: iter([compiles("a"), compiles("b")]))
    said: list[str] = []
    assert warming.warmed(said.append) == 4
    assert done == ["a", "b"]
    assert said == ["compiling kernels, 1 of 2: a", "compiling kernels, 2 of 2: b"]


@pytest.mark.parametrize(
    ("compiled", "line"), [(3, "Compiled 3 kernels in 0 seconds."), (0, "No ")]
)
def test_it_says_how_many_it_compiled(
    monkeypatch: pytest.MonkeyPatch, compiled: int, line: str
) -> None:
    monkeypatch.setattr(announcer, "compiled", 0)

    def job() -> None:
        announcer.compiled += compiled

    monkeypatch.setattr(warming, "jobs", lambda: iter([("a", job)]))
    assert run().stdout.startswith(line)
    monkeypatch.setattr(announcer, "compiled", 0)
    assert json.loads(run("--json").stdout)["compiled"] == compiled
    assert run("--quiet").output == ""


def test_the_jobs_are_small_fits_of_every_kind() -> None:
    """The fastest of them run here; `select_k` and the wide ones take seconds each."""
    jobs = dict(warming.jobs())
    assert len(jobs) > 20
    for name in ("k-means", "fkm", "kfed", "mixtures, diag", "groups of rows"):
        jobs[name]()
