"""Membership: how well a coordinator that knows a row can tell whether the site has it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from scipy.spatial import cKDTree

from fedcluster._attacks._asking import seeds_that_are_rows
from fedcluster._attacks._combining import dump
from fedcluster._attacks._coordinator import Public
from fedcluster._attacks._play import Play
from fedcluster._attacks._site import Subject, values_of
from fedcluster.core import Data, Floats

CANARIES = 40
"""The most rows of made-up values that a site is given, and as many that it is not."""

HALF = 2
SURE = 1.96


@dataclass(frozen=True, slots=True)
class Advantage:
    """Rows of the site taken for its own, less others that are, as shares.

    Parameters
    ----------
    value : float
        1 if membership is known for certain, 0 by chance.
    margin : float
        Half the width of the interval of 95 %.
    """

    value: float
    margin: float


def membership(play: Play, most: int | None = None) -> Advantage:
    """Return how well the nearest group, or seed, tells rows of the site from others.

    Of the first ``most`` rows of both, by default of all.
    """
    public = play.public
    told = [dump(play.coordinator), seeds_that_are_rows(play.coordinator)]
    lines = told[0][:, :-1] / np.maximum(told[0][:, -1:], 1e-300)
    points = np.concatenate([lines, told[1][:, :-1]]) / public.width
    mine, others = (
        np.where(np.isnan(v), public.middle, v) / public.width
        for v in (
            values_of(d, public)[:most, :-1] for d in (play.subject.rows, play.subject.others)
        )
    )
    if not len(points):
        return Advantage(0.0, 0.0)
    tree = cKDTree(points)
    near = [tree.query(rows)[0] for rows in (mine, others)]
    return _advantage(near[0], near[1])


def canaries(subject: Subject, public: Public, rng: Generator) -> Advantage:
    """Return how well canaries that the site was given can be told from those that it was not.

    A canary is a row whose numbers are drawn evenly from the public ranges, each by itself: most
    are far from all rows.
    """
    most = min(CANARIES, len(subject.rows), len(subject.others))
    place = [[column.name for column in public.columns].index(name) for name in public.numbers]

    def given(rows: Data) -> Data:
        X = rows.X.copy()
        X[:most, place] = rng.uniform(public.low, public.high, (most, len(place)))
        return replace(rows, X=X)

    with_canaries = replace(subject, rows=given(subject.rows), others=given(subject.others))
    return membership(Play(with_canaries, public), most)


def _advantage(mine: Floats, others: Floats) -> Advantage:
    """Return the advantage of a threshold that is chosen on one half and used on the other."""
    chosen, used = ([each[i::HALF] for each in (mine, others)] for i in range(HALF))
    cuts = np.unique(np.concatenate(chosen))
    gain = [(chosen[0] <= cut).mean() - (chosen[1] <= cut).mean() for cut in cuts]
    cut = cuts[int(np.argmax(gain))]
    shares = [(each <= cut).mean() for each in used]
    margin = SURE * sum(s * (1 - s) / len(u) for s, u in zip(shares, used, strict=True)) ** 0.5
    return Advantage(float(shares[0] - shares[1]), float(margin))
