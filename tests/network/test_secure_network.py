"""Secure sums in a real federation: keys that sites pass on, refusals, a site that is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from federations import LINUX, RunningFederation, in_one_process, read_json
from flares import RunningFlare

from fedcluster.jobs import fit_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.site.file import SiteFile

pytestmark = [pytest.mark.long, LINUX]

RNG = np.random.default_rng(1)
ROWS = {
    name: RNG.normal(size=(n, 2)) + RNG.integers(0, 3, (n, 1)) * [6.0, 9.0]
    for name, n in {"north": 60, "south": 80, "west": 70, "east": 50}.items()
}
WAIT = ["--set", "run.deadline=900"]


def keys(federation: RunningFederation) -> str:
    """The public keys of sites that answer with secure sums from now on."""
    lines = []
    for name in ROWS:
        toml = federation.site(name) / "site.toml"
        text = toml.read_text().replace("# secure = true", "secure = true")
        toml.write_text(text.replace("# allow_", "allow_"))
        lines += federation.command("site", "key", toml).done().splitlines()[:1]
    return "\n".join(lines)


@contextmanager
def joined(federation: RunningFederation, peers: str) -> Iterator[None]:
    """Pass keys on, and start."""
    for name in ROWS:
        (federation.site(name) / "peers.toml").write_text(peers)
    try:
        federation.start()
        federation.join(*ROWS)
        yield
    finally:
        federation.end()
        assert not federation.left_over()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFederation]:
    federation = RunningFederation(tmp_path_factory.mktemp("secure"), ROWS)
    peers = keys(federation)
    toml = federation.site("east") / "site.toml"
    early = federation.command("site", "start", toml, name="early")
    assert early.wait() != 0
    assert "peers.toml is missing" in early.said()
    with joined(federation, peers):
        said = federation.command("site", "key", toml, "--json").done()
        assert json.loads(said)["peers"] == sorted(ROWS)
        yield federation


def test_the_clusters_of_plain_sums_and_no_rows_of_a_site(running, tmp_path):
    said = running.run("fit", "-k", 3, "--secure", *WAIT, "--out", tmp_path / "out").done()
    model, history = (read_json(tmp_path / "out" / f"{n}.json") for n in ("model", "history"))
    job = fit_of(3, prepare=PreprocessingSpec(missing="mean"), sums_only=True)
    _, found = in_one_process(job, ROWS)
    np.testing.assert_allclose(model["centers"], found.state.centers, atol=1e-9)
    assert model["weights"] == found.state.weights.tolist()
    assert {(site["weight"], site["secure"]) for site in history["sites"]} == {(None, True)}
    assert "not told" in said


@pytest.mark.parametrize("transport", [RunningFederation, RunningFlare], ids=["flower", "flare"])
def test_texts_dates_gaps_and_own_limits_are_summed_as_without_masks(transport, tmp_path):
    federation = transport(tmp_path, ROWS)
    tomls = [federation.site(name) / "site.toml" for name in ROWS]
    for least, (toml, X) in enumerate(zip(tomls, ROWS.values(), strict=True), start=5):
        with_texts_and_dates(toml, X, least)
    fit = ["-k", 3, "--out"]
    with joined(federation, keys(federation)):
        federation.run("fit", *fit, tmp_path / "there", "--secure", *WAIT).done()
    here = ["--set", "fit.sums_only=true", *fit, tmp_path / "here"]
    federation.command("fit", *tomls, *here).done()
    there, plain = (read_json(tmp_path / side / "model.json") for side in ("there", "here"))
    assert there["columns"] == plain["columns"] == ["x", "y", "ward", "seen"]
    np.testing.assert_allclose(there["centers"], plain["centers"], rtol=0, atol=1e-9)
    assert there["weights"] == plain["weights"]


def with_texts_and_dates(toml: Path, X: np.ndarray, least: int) -> None:
    """Give a site a column of texts, one of dates, gaps, and limits of its own."""
    rng = np.random.default_rng(len(X))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(1500, size=len(X)), "D")
    wards = rng.choice(["A", "B", "C"], size=len(X), p=[0.5, 0.3, 0.2])
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "ward": wards, "seen": days, "side": "left"})
    for column in ("x", "ward"):
        frame.loc[rng.choice(len(X), 5, replace=False), column] = None
    frame.to_csv(toml.with_name("rows.csv"), index=False, date_format="%Y-%m-%d")
    text = toml.read_text().replace('protection = "groups"', 'protection = "limits"')
    assert text != toml.read_text()
    limits = f"\n[limits]\nmin_rows = {5 * least}\nmin_cluster_size = {least}\n"
    toml.write_text(f'{text}{limits}\n[dates]\nseen = "age:2024-12-31"\n')
    SiteFile.load(toml).confirm()


def test_a_run_without_masks_is_refused_by_the_sites(running, tmp_path):
    run = running.run("fit", "-k", 3, *WAIT, "--out", tmp_path / "out")
    assert run.wait() != 0
    assert "answers with secure sums only: begin the run with --secure" in run.said()
    assert not (tmp_path / "out").exists()


def test_a_site_that_is_killed_is_left_out_and_the_masks_are_recovered(running, tmp_path):
    terms = ["--secure", "--quorum", 3, *WAIT]
    run = running.run("fit", "-k", 3, *terms, "--out", tmp_path / "out")
    running.wait_for_exchange(3)
    running.sites["east"].kill()
    run.done()
    assert ["east"] in running.missing()
    history = read_json(tmp_path / "out" / "history.json")
    assert sum(history["weights"]) in (260, 210)
