"""What is said of columns that one site exports otherwise, and of honest ones: fresh draws."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typed import run

from benchmarks.columns import (
    HONEST_KINDS,
    KINDS,
    ODD_LINES,
    honest,
    is_mended,
    planted,
    remedies,
    said,
    verdict,
)

SEED = 2_027
"""No threshold was tuned on draws of this seed."""


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(4))
def test_kinds_of_exports_are_named_and_what_is_proposed_mends_them(part: int) -> None:
    found: Counter[str] = Counter()
    for number, kind in enumerate(KINDS[part::4]):
        sites = planted(kind, np.random.default_rng([SEED, part, number]))
        lines = said(sites)
        found[verdict(kind, lines)] += 1
        for options in remedies(kind, lines):
            assert is_mended(kind, sites, options), (kind.name, options)
    assert found["SILENT"] <= 2, found
    assert found["right"] >= 0.9 * found.total(), found


@pytest.mark.parametrize("how", HONEST_KINDS)
def test_of_honest_columns_one_in_two_hundred_is_named_at_most(how: str) -> None:
    columns, wrong = 0, []
    for draw in range(6):
        sites = honest(np.random.default_rng([SEED, draw, len(how)]), how)
        columns += next(iter(sites.values())).shape[1]
        wrong += [line for line in said(sites) if line[:4] == "warn" and ODD_LINES.search(line)]
    assert len(wrong) <= 1, wrong
    assert columns > 40


@pytest.mark.usefixtures("here")
def test_times_become_hours_and_months_are_dates():
    for site, hour in (("a", 1), ("b", 2)):
        cells = [f"{i},{hour}:{30 * (i % 2):02d},2023-{i % 12 + 1:02d}" for i in range(30)]
        Path(f"{site}.csv").write_text("\n".join(["x,op,month", *cells, ""]))
    check = "check a.csv b.csv"
    assert "not clustered by op and month (dates; --set dates=age makes " in run(check).stderr
    wrong = run(check, "--set", "dates.op=age").stderr
    assert "column 'op', it holds times, and no dates; say --set dates.op=hour" in wrong
    dated = run(check, "--set", "dates.month=hour").stderr
    assert "column 'month', it holds dates without times" in dated
    both = run(check, "--set", "dates.op=hour", "--set", "dates.month=month", "--json").stdout
    assert '"op": {"a": [1.25, 0.25], "b": [2.25, 0.25]}' in " ".join(both.split())
