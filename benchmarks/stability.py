"""Whether stability tells true clusters from spurious ones, on twenty kinds of rows.

    .venv/bin/python benchmarks/stability.py [--draws 3] [--kinds ...] [--json FILE]

Every second kind of benchmarks/kinds.py, at three sites, is fitted with the true number of clusters
and with two more; one cloud with two, four and nine. A cluster is true where it has at least .75 of
the rows, by Jaccard, that a true cluster or it has; spurious where it has less than .5 with all of
them, or where the rows are one cloud. What is in between counts as neither. With --json, each draw
is saved as it is done.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from kinds import KINDS as EVERY
from kinds import drawn

from fedcluster import FederatedKMeans, PreprocessingSpec
from fedcluster.model.stability import jaccards

KINDS = list(EVERY)[::2]
TRUE, SPURIOUS = 0.75, 0.5
WORDS = ("stable", "doubtful", "unstable", "unknown")


def asked(kind: str, draw: int, more: int) -> list[dict[str, object]]:
    """Return what is told of each cluster of one fit, and whether it is true or spurious."""
    rows, sites = drawn(kind, draw)
    k = max(rows.k + more, 2)
    how = {"prepare": PreprocessingSpec(), "random_state": draw}
    alone = FederatedKMeans(k, **how).fit(rows.table(), sites=sites)
    model = FederatedKMeans(k, stability=True, **how).fit(rows.table(), sites=sites)
    classes, place = np.unique(rows.cluster, return_inverse=True)
    table = np.zeros((k, len(classes)))
    np.add.at(table, (model.labels_, place), 1.0)
    shares = jaccards(table) if rows.k > 1 else np.zeros(k)
    found = model.stability_
    return [
        {
            "kind": kind,
            "draw": draw,
            "k": k,
            "share": share,
            "stability": mean,
            "between": between,
            "word": word,
            "rounds": [alone.n_iter_, model.n_iter_],
        }
        for share, mean, between, word in zip(
            shares.tolist(), found.means.tolist(), found.between.tolist(), found.words, strict=True
        )
    ]


def print_table(clusters: list[dict]) -> None:
    """Print the share of clusters with each word, and the rounds."""
    true = [c["word"] for c in clusters if c["share"] >= TRUE]
    spurious = [c["word"] for c in clusters if c["share"] < SPURIOUS]
    print(f"{len(true)} true clusters, {len(spurious)} spurious ones")
    for word in WORDS:
        shares = [each.count(word) / max(len(each), 1) for each in (true, spurious)]
        print(f"{word}: " + " and ".join(f"{share:.1%}" for share in shares))
    ratios = np.array([c["rounds"][1] / c["rounds"][0] for c in clusters])
    print(f"rounds to those of a fit: at most {ratios.max():.2f}, mean {ratios.mean():.2f}")
    for kind in KINDS:
        own = [c for c in clusters if c["kind"] == kind]
        lost = sum(c["share"] >= TRUE and c["word"] != "stable" for c in own)
        kept = sum(c["share"] < SPURIOUS and c["word"] == "stable" for c in own)
        if lost or kept:
            print(f"  {kind}: {lost} true ones lost, {kept} spurious ones kept of {len(own)}")


def main() -> None:
    """Measure, and show what was measured so far."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--json", type=Path, help="where draws are kept")
    given = parser.parse_args()
    kept = given.json
    clusters = json.loads(kept.read_text("utf-8")) if kept and kept.exists() else []
    done = {(c["kind"], c["draw"], c["more"]) for c in clusters}
    for draw in range(given.draws):
        for kind in given.kinds:
            for more in (1, 3, 8) if kind.startswith("one") else (0, 2):
                if (kind, draw, more) not in done:
                    clusters += [c | {"more": more} for c in asked(kind, draw, more)]
                    if kept:
                        kept.write_text(json.dumps(clusters), encoding="utf-8")
    print_table(clusters)


if __name__ == "__main__":
    main()
