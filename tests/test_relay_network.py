"""A relay between two real federations on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from federations import RunningFederation, federation, in_one_process, labelled, read_json

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


def test_a_fit_over_a_relay_has_the_bits_of_one_over_all_sites(tmp_path: Path) -> None:
    """All answer with groups of their rows; the model goes down to the sites of the relay."""
    for name in ("below", "above"):
        (tmp_path / name).mkdir()
    with federation(tmp_path / "below", {name: ROWS[name] for name in "abc"}) as below:

        def prepare(above: RunningFederation) -> None:
            (above.site("relay") / "rows.csv").unlink()
            (above.site("relay") / "site.toml").write_text(
                f'name = "relay"\n[source]\nfederation = "{below.folder}"\n[federation]\n'
                f'coordinator = "{above.federation.address}"\ncertificate = "ca.crt"\nkey = "key"\n'
            )

        rows = {"d": ROWS["d"], "e": ROWS["e"], "relay": ROWS["a"]}
        with federation(tmp_path / "above", rows, prepare=prepare) as above:
            options = ("--columns", "x,y", "--seed", 1, "--deadline", 300)
            run = above.run("fit", "-k", 3, "--scale", "none", *options, "--out", tmp_path / "out")
            assert run.wait() == 0, run.said()
    job = Fit(3, sums_only=True, seed=1)
    _, expected = in_one_process(job, ROWS)
    model = read_json(tmp_path / "out" / "model.json")
    assert np.array(model["centers"]).tobytes() == expected.state.centers.tobytes()
    for name in "abc":
        assert labelled(below.site(name)).endswith("results")
        assert (below.site(name) / "results" / "labels.csv").is_file()
