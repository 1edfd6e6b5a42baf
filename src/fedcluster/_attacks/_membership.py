"""Membership: how well a coordinator that knows a row can tell whether the site has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from fedcluster._attacks._asking import seeds_that_are_rows
from fedcluster._attacks._combining import dump
from fedcluster._attacks._play import Play
from fedcluster._attacks._site import values_of
from fedcluster.core import Floats

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


def membership(play: Play) -> Advantage:
    """Return how well the nearest group, or seed, tells rows of the site from others."""
    public = play.public
    told = [dump(play.coordinator), seeds_that_are_rows(play.coordinator)]
    lines = told[0][:, :-1] / np.maximum(told[0][:, -1:], 1e-300)
    points = np.concatenate([lines, told[1][:, :-1]]) / public.width
    mine, others = (
        np.where(np.isnan(v), public.middle, v) / public.width
        for v in (values_of(d, public)[:, :-1] for d in (play.subject.rows, play.subject.others))
    )
    if not len(points):
        return Advantage(0.0, 0.0)
    tree = cKDTree(points)
    near = [tree.query(rows)[0] for rows in (mine, others)]
    return _advantage(near[0], near[1])


def _advantage(mine: Floats, others: Floats) -> Advantage:
    """Return the advantage of a threshold that is chosen on one half and used on the other."""
    chosen, used = ([each[i::HALF] for each in (mine, others)] for i in range(HALF))
    cuts = np.unique(np.concatenate(chosen))
    gain = [(chosen[0] <= cut).mean() - (chosen[1] <= cut).mean() for cut in cuts]
    cut = cuts[int(np.argmax(gain))]
    shares = [(each <= cut).mean() for each in used]
    margin = SURE * sum(s * (1 - s) / len(u) for s, u in zip(shares, used, strict=True)) ** 0.5
    return Advantage(float(shares[0] - shares[1]), float(margin))
