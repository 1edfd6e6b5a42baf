"""Noise that sites share under secure sums: all of it in the total, whoever works together."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from secure_sites import STEPS, Wire, identities
from test_budget import SITE
from test_noise import SumsByCentre

from fedcluster import Client, Data, State, Task
from fedcluster.engines.wire import WireError
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import execute, fit_of
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy.budget import Budget
from fedcluster.privacy.disclosure import Disclosure
from fedcluster_app.extend import Responder
from fedcluster_app.secure._masks import SIZE, format_for
from fedcluster_app.secure.cohort import Terms
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.secure.site import SecureSite, encoded
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_responder
from fedcluster_app.trust.site_state import SiteState
from fedcluster_app.wire.policy import BudgetLedger, Policy

RNG = np.random.default_rng(0)
MIDDLES = np.array([[2.0, 30.0], [8.0, 30.0], [5.0, 70.0]])
ROWS = MIDDLES[RNG.integers(0, 3, 3000)] + RNG.normal(0, [0.4, 3.0], (3000, 2))
BOUNDS = {"x0": (0.0, 10.0), "x1": (0.0, 100.0)}
BOX = Preprocessor.in_box(["x0", "x1"], [0, 0], [10, 100])
MANY = State.at(np.zeros((400, 2)))
NAMES = [f"site-{i}" for i in range(6)]
BUDGET = Budget(2.0, 1e-6)


def ledger(folder: Path, name: str) -> BudgetLedger:
    state = SiteState(folder / f"{name}.db")
    if not state.is_there:
        state.create()
    return BudgetLedger(state, BUDGET)


def site(folder: Path, name: str, keys: Any, rows: Any, terms: Terms) -> Responder:
    peers = {each: key.public_key() for each, key in keys.items()}
    steps = {**STEPS, "SumsByCentre": SumsByCentre}
    client = Client(name, Data(rows), Disclosure(budget=BUDGET, colluders=terms.colluders))
    return Responder(
        client,
        columns=("x0", "x1"),
        choose=lambda chosen, raw=False: client,
        steps=steps,
        preprocessors=partial(row_transform, steps=steps),
        policy=Policy(budget=ledger(folder, name)),
        secure=SecureSite(name, keys[name], peers, terms),
    )


def engine(folder: Path, colluders: int | None, **how: Any) -> SecureEngine:
    keys, parts = identities(NAMES), np.array_split(ROWS, len(NAMES))
    terms = Terms(colluders=colluders, allow_dropouts="quorum" in how)
    each = zip(NAMES, parts, strict=True)
    secure = SecureEngine(Wire({n: site(folder, n, keys, X, terms) for n, X in each}), NAMES, **how)
    secure.choose_publicly(["x0", "x1"])
    return secure


def spread(secure: SecureEngine, noise: float) -> float:
    """The standard deviation of the noise on a total, over what one site was asked to add."""
    [answers] = secure.ask([Task(SumsByCentre(), MANY, preprocessor=BOX, noise=noise)])
    total = answers.total()
    exact = np.zeros(400)
    exact[0] = 3000  # all are as near to each centre: the first counts
    return float((total.weights - exact).std() / (noise * np.sqrt(2)))


@pytest.mark.parametrize(
    ("colluders", "how", "expected"),
    [
        (None, {}, np.sqrt(6)),  # each of six sites adds all of it
        (0, {}, 1.0),  # each adds a sixth of the variance
        (2, {}, np.sqrt(6 / 4)),  # four alone must add up to all of it
        (1, {"quorum": 5}, np.sqrt(6 / 4)),  # of five that are left, one may tell
    ],
)
def test_the_total_has_all_of_the_noise(tmp_path, colluders, how, expected):
    found = spread(engine(tmp_path, colluders, **how), 50.0)
    assert found == pytest.approx(expected, rel=6 / np.sqrt(2 * 400))


def test_too_many_colluders_leave_nobody_to_add_noise(tmp_path):
    with pytest.raises(SiteError, match="6 sites may work with the coordinator"):
        spread(engine(tmp_path, 6), 50.0)
    assert not ledger(tmp_path, "site-0").charges  # refused before it was charged


def test_a_coordinator_cannot_have_noise_shared_by_sites_that_do_not_exist():
    """The shares are counted from the sites that a sum is really over, by their keys."""
    three = NAMES[:3]
    keys = identities(three)
    peers = {name: key.public_key() for name, key in keys.items()}
    one = SecureSite("site-0", keys["site-0"], peers, Terms(colluders=0))
    one.reply({"run": "run"}, {"stage": "keys", "cohort": three, "threshold": 3})
    asked = {"stage": "masked", "sum": 1, "sites": three}
    assert one.noise_shares({"run": "run"}, asked) == 3
    for wrong in ({"sites": NAMES}, {"sites": [*three, "x"]}, {"sum": 2}, {"sites": None}):
        with pytest.raises(WireError, match="secure sums"):
            one.noise_shares({"run": "run"}, {**asked, **wrong})
    with pytest.raises(WireError, match="no keys of the run"):
        one.noise_shares({"run": "another"}, asked)


@pytest.mark.parametrize("colluders", [None, 1])
def test_a_private_fit_under_secure_sums(tmp_path, colluders):
    secure = engine(tmp_path, colluders)
    report = execute(fit_of(3, epsilon=2.0, bounds=BOUNDS), secure, columns=["x0", "x1"])
    assert report.privacy is not None
    assert report.privacy.epsilon <= 2.0
    assert report.preprocessor is not None
    centers = report.preprocessor.invert(report.outcome.value.state.centers)
    far = np.abs(centers[:, None] - MIDDLES).max(axis=2).min(axis=0)
    assert far.max() < 5
    for name in NAMES:
        assert 1.99 < ledger(tmp_path, name).spent <= 2.0
    assert not secure.refusals


def test_a_site_file_says_who_may_collude_under_secure_sums_only(tmp_path):
    lines = [f"{x!r},{y!r}" for x, y in ROWS[:50].tolist()]
    (tmp_path / "rows.csv").write_text("\n".join(["x0,x1", *lines, ""]))
    path = tmp_path / "site.toml"

    def read(more: str) -> SiteFile:
        path.write_text(f"{SITE}{more}\n")
        return SiteFile.load(path)

    found = read("colluders = 2")
    assert found.colluders == 2
    [told] = found.client().site.limits
    assert str(told) == "PrivacyBudget(epsilon=2.0, delta=1e-06, group_size=1, colluders=2)"
    with pytest.raises(InputError, match="colluders must be a whole number of at least 0"):
        read("colluders = -1")
    there = 'coordinator = "127.0.0.1:1"\ncertificate = "system"\nkey = "site.toml"'
    plain = read(f"colluders = 2\n[federation]\n{there}")
    with pytest.raises(InputError, match="sites share noise under secure sums only"):
        site_responder(plain, Membership.from_site_file(plain), lambda line: None)


def test_nothing_but_noisy_totals_leaves():
    """The size that tells whether sums have room would see each site's own part of the noise."""
    n = 400 * 3 * format_for(MANY).n_words
    exact = Task(SumsByCentre(), MANY, preprocessor=BOX)
    for asked, tells in ((replace(exact, noise=1.0, shares=6), False), (exact, True)):
        words = encoded([asked], [Client("one", Data(ROWS), ()).answer(asked)])
        assert len(words) == n + SIZE.n_words
        assert words[n:].any() == tells
