"""What limits cost: the inertia of all rows, where sites hold back clusters of fewer than p rows.

    .venv/bin/python benchmarks/limits.py [--only iris]

Sets of `families`, first seed, at five random sites (or tiny ones). The cost is the inertia on all
rows over that of a fit without a limit, less 1; beside it stands what the fit says of itself.
"""

from __future__ import annotations

import argparse
import re
import warnings

from families import SETS, RowSet

from fedcluster import FederatedKMeans
from fedcluster.kernels import nearest

NAMES = (
    "uniform, 2 columns", "uniform, 4 columns", "overlapping, 2 columns", "overlapping, 5 columns",
    "unbalanced, 2 columns", "iris K 10", "lognormal, 1 column", "t 2, 5 columns",
    "6 clouds, 3 outliers", "Pareto 2, 2 columns", "Cauchy, 3 columns", "60 sites of 8",
)  # fmt: skip
LIMITS = (2, 5)


def line(each: RowSet) -> str:
    """Return cost and hidden shares for each limit, by bars."""
    X, y = each.rows(0)
    site, cells, inertia = each.sites(X, y, each.splits()[0], 0), [each.name], []
    for p in (1, *LIMITS):
        model = FederatedKMeans(each.k, min_cluster_size=p, random_state=0).fit(X, sites=site)
        inertia.append(float(nearest(X, model.cluster_centers_)[1].sum()))
        if p > 1:
            hidden = re.findall(r"[\d.]+ ?%", model.stop_reason_)
            cells += [f"{inertia[-1] / inertia[0] - 1:.3f}", ", ".join(hidden) or "none"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a line of a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="sets whose name contains this")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # that sites have fewer rows than clusters
    for each in SETS:
        if each.name in NAMES and given.only in each.name:
            print(line(each), flush=True)


if __name__ == "__main__":
    main()
