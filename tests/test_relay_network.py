"""A relay between two real federations on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from federations import RunningFederation, federation, in_one_process, labelled, read_json

from fedcluster.coordinator.folder import Federation
from fedcluster.coordinator.runs import GOING, runs
from fedcluster.jobs import Fit

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

RNG = np.random.default_rng(0)
ROWS = {
    name: RNG.normal(size=(60 + 10 * i, 2)) + RNG.integers(0, 3, (60 + 10 * i, 1)) * [6.0, 8.0]
    for i, name in enumerate("abcde")
}
FIT = ["--columns", "x,y", "--seed", 1, "--deadline", 300, "--scale", "none"]


@contextmanager
def relayed(folder: Path) -> Iterator[tuple[RunningFederation, RunningFederation]]:
    """A federation above, of two sites and a relay, and the one below that, of three."""
    for name in ("below", "above"):
        (folder / name).mkdir()
    with federation(folder / "below", {name: ROWS[name] for name in "abc"}) as below:

        def prepare(above: RunningFederation) -> None:
            (above.site("relay") / "rows.csv").unlink()
            (above.site("relay") / "site.toml").write_text(
                f'name = "relay"\n[source]\nfederation = "{below.folder}"\n[federation]\n'
                f'coordinator = "{above.federation.address}"\ncertificate = "state/ca.crt"\n'
                'key = "state/key"\n'
            )

        rows = {"d": ROWS["d"], "e": ROWS["e"], "relay": ROWS["a"]}
        with federation(folder / "above", rows, prepare=prepare) as above:
            yield above, below


def test_a_fit_over_a_relay_has_the_bits_of_one_over_all_sites(tmp_path: Path) -> None:
    """All answer with groups of their rows; the model goes down to the sites of the relay."""
    with relayed(tmp_path) as (above, below):
        run = above.run("fit", "-k", 3, *FIT, "--out", tmp_path / "out")
        assert run.wait() == 0, run.said()
        for name in "abc":
            assert labelled(below.site(name)).endswith("results")
            assert (below.site(name) / "results" / "labels.csv").is_file()
    job = Fit(3, sums_only=True, seed=1)
    _, expected = in_one_process(job, ROWS)
    model = read_json(tmp_path / "out" / "model.json")
    assert np.array(model["centers"]).tobytes() == expected.state.centers.tobytes()


def test_a_relay_that_is_killed_holds_nobody_up_and_comes_back(tmp_path: Path) -> None:
    """Its run below ends soon; started again, it answers the rest of the run above, bit by bit."""
    with relayed(tmp_path) as (above, below):
        run = above.run("fit", "-k", 3, *FIT, "--out", tmp_path / "out")
        above.wait_for_exchange(2)
        above.sites["relay"].kill()
        killed = time.monotonic()
        here = Federation.load(below.folder)
        below.wait_until(lambda: not any(each.state in GOING for each in runs(here)))
        assert time.monotonic() - killed < 30
        assert {each.state for each in runs(here)} <= {"done", "interrupted"}
        own = below.run("fit", "-k", 2, *FIT, "--out", tmp_path / "own")
        assert own.wait() == 0, own.said()
        above.join("relay")
        assert run.wait() == 0, run.said()
        missing = [name for names in above.missing() for name in names]
    _, expected = in_one_process(Fit(3, sums_only=True, seed=1), ROWS)
    model = read_json(tmp_path / "out" / "model.json")
    assert not missing
    assert np.array(model["centers"]).tobytes() == expected.state.centers.tobytes()
