"""The audit: every attack against a site as it is protected, and as it could be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedcluster._attacks import _asking as asking
from fedcluster._attacks import _combining as combining
from fedcluster._attacks import _remembering as remembering
from fedcluster._attacks._claims import Score
from fedcluster._attacks._coordinator import Coordinator, Public
from fedcluster._attacks._membership import Advantage, canaries, membership
from fedcluster._attacks._play import Play
from fedcluster._attacks._simulated import simulated
from fedcluster._attacks._site import LIMITS, Protection, Subject, public_of, split
from fedcluster._site import SiteFile
from fedcluster.client import Client
from fedcluster.core import Data, Floats
from fedcluster.engines import LocalEngine
from fedcluster.errors import InputError
from fedcluster.jobs import Fit, execute
from fedcluster.kernels import nearest
from fedcluster.privacy import Groups
from fedcluster.privacy._ledger import PolicyLimits


@dataclass(frozen=True, slots=True)
class Attack:
    """Way to read rows.

    Parameters
    ----------
    name : str
        What a table calls it.
    play : callable
        Returns claims, (m, d + 1).
    protected : bool, default=True
        Whether groups promise that it reads nothing.
    """

    name: str
    play: Callable[[Play], Floats]
    protected: bool = True


def _asked(name: str, attack: Callable[[Coordinator], Floats]) -> Attack:
    return Attack(name, lambda play: attack(play.coordinator))


ATTACKS = (
    _asked("seeds that are rows", asking.seeds_that_are_rows),
    _asked("batches of one row", asking.batches_of_one),
    _asked("sums about far centres", asking.far_centres),
    _asked("thresholds of a tree", asking.thresholds_of_a_tree),
    _asked("texts that few have", asking.rare_texts),
    _asked("numbers taken for texts", asking.guessed_numbers),
    _asked("nested intervals", asking.nested_intervals),
    _asked("labels at many cuts", asking.labels_at_cuts),
    _asked("fuzzy sums, nearly hard", asking.fuzzy_near_hard),
    _asked("kinks of indices", asking.kinks_of_indices),
    _asked("random directions", asking.random_directions),
    _asked("clipped products", asking.clipped_products),
    _asked("products of columns", asking.products_of_columns),
    _asked("missing, filled twice", asking.missing_values),
    Attack("answers of a run, paired", combining.pairs_of_a_run),
    Attack("trajectories of a run", combining.trajectories),
    Attack("random equations", combining.equations),
    Attack("other columns and scales", combining.other_columns),
    Attack("a row removed", combining.removed_rows),
    Attack("a row added", combining.added_rows),
    Attack("a row changed", combining.changed_rows),
    Attack("twenty versions", combining.many_versions),
    Attack("a column edited often", combining.edited_rows),
    Attack("a unit wrong, mended", remembering.three_versions),
    Attack("persons named later", remembering.persons_named_later),
    Attack("secure sums without it", remembering.smaller_cohort),
    Attack("all rows but one known", combining.all_rows_but_one, protected=False),
)
"""Every attack, by the name that a table shows."""

PROTECTIONS = (
    Protection("limits 5", filters=LIMITS),
    *(Protection(f"groups {p}", Groups(p)) for p in (3, 5, 10)),
)
"""What a site could have instead."""
RESTARTS = 5
VARIED = 0.05
"""Share of the rows whose value is not the commonest one, in a column that one clusters by."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one attack read.

    Parameters
    ----------
    attack : str
        Its name.
    protected : bool
        Whether groups promise that it reads nothing.
    score : Score
        What it read.
    asked, refused : int
        Tasks that were asked, and those that the site did not answer.
    """

    attack: str
    protected: bool
    score: Score
    asked: int
    refused: int


@dataclass(frozen=True, slots=True)
class Audit:
    """Audit of a site under one protection.

    Parameters
    ----------
    protection : str
        Its name.
    n_rows : int
        Rows that the site was played with.
    readings : tuple of Reading
        One for each attack.
    membership : Advantage
        How well rows of the site can be told from others.
    canaries : Advantage
        The same of made-up rows, far from most others, of which the site was given one half.
    quality : float
        Exact inertia of the centres found on groups, as a multiple of that of an exact fit.
    """

    protection: str
    n_rows: int
    readings: tuple[Reading, ...]
    membership: Advantage
    canaries: Advantage
    quality: float

    @property
    def worst(self) -> int:
        """The most rows that an attack read, of those against which groups promise something."""
        return max((each.score.read for each in self.readings if each.protected), default=0)


def audit(
    data: Data,
    protections: Sequence[Protection] = PROTECTIONS,
    *,
    n_clusters: int = 8,
    seed: int = 0,
    attacks: Sequence[Attack] = ATTACKS,
) -> Iterator[Audit]:
    """Play every attack against a site of these rows, under each protection.

    Parameters
    ----------
    data : Data
        The rows, not prepared. A fifth of them, drawn by chance, the site never has: what chance
        hits is counted on them.
    protections : sequence of Protection
        How the site protects its rows.
    n_clusters : int, default=8
        k of the fits whose inertia is compared.
    seed : int, default=0
        Draws the fifth.
    attacks : sequence of Attack
        What is played.
    """
    rng = np.random.default_rng(seed)
    mine, others = split(data, rng)
    public = public_of(data)
    for protection in protections:
        with TemporaryDirectory() as folder:
            subject = Subject(mine, others, protection, Path(folder))
            yield Audit(
                protection.name,
                len(mine),
                tuple(played(attack, subject, public) for attack in attacks),
                membership(Play(_apart(subject, "membership"), public)),
                canaries(_apart(subject, "canaries"), public, np.random.default_rng(seed)),
                quality(mine, public, protection, n_clusters, seed),
            )


def rows_of(path: Path | None, most: int, seed: int) -> tuple[Data, tuple[Protection, ...]]:
    """Return the rows of a site, or made-up ones, and its protection before others.

    Parameters
    ----------
    path : Path, optional
        The site's file.
    most : int
        The most rows; of more, so many are drawn.
    seed : int
        Of what is drawn.

    Raises
    ------
    InputError
        If the rows cannot be read, or no column of them holds numbers.
    """
    if path is None:
        now = Protection("default", Groups(), policy=PolicyLimits())
        return simulated(most, seed), (now, *PROTECTIONS)
    site = SiteFile.load(path)
    data = site.opened(raw=True).load()
    if not any(column.kind == "number" for column in data.columns):
        raise InputError(f"site {site.name!r} has no column of numbers, which attacks read")
    if len(data) > most:
        data = data.take(np.sort(np.random.default_rng(seed).permutation(len(data))[:most]))
    groups = None if site.protection == "limits" else site.groups
    now = Protection("as it is", groups, site.limits.filters, site.policy, site.label_column)
    return data, (now, *PROTECTIONS)


def played(attack: Attack, subject: Subject, public: Public) -> Reading:
    """Return what an attack reads of a site that nothing was asked before."""
    subject = _apart(subject, attack.name)
    play = Play(subject, public)
    score = subject.truth(public).score(attack.play(play))
    return Reading(attack.name, attack.protected, score, play.asked, play.refused)


def _apart(subject: Subject, name: str) -> Subject:
    folder = subject.folder / name.replace(" ", "-")
    folder.mkdir()
    return Subject(subject.rows, subject.others, subject.protection, folder)


def quality(data: Data, public: Public, protection: Protection, k: int, seed: int) -> float:
    """Return the exact inertia of centres found under a protection, by that of an exact fit.

    Of the numbers in standard deviations, missing ones filled in with the mean, without columns
    in which nearly all rows agree; the median of five restarts.
    """
    X = data.X[:, [c.name in public.numbers for c in public.columns]].astype(np.float64)
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    X = X[:, (np.median(X, axis=0) != X).mean(axis=0) > VARIED]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows, groups = Data(X, data.sample_weight, groups=data.groups), protection.groups
    if groups is not None:  # of columns without names, none is sensitive
        groups = replace(groups, sensitive=(), diversity=1)
    clients = (
        Client("north", rows, protection.filters, groups),
        Client("north", rows, ()),
    )
    found = [
        np.median([_inertia(client, rows, k, seed + i) for i in range(RESTARTS)])
        for client in clients
    ]
    return float(found[0] / found[1])


def _inertia(client: Client, rows: Data, k: int, seed: int) -> float:
    fit = execute(Fit(k, seed=seed), LocalEngine([client])).outcome.value
    squared = nearest(rows.X, fit.state.centers)[1]
    return float(squared.sum() if rows.sample_weight is None else squared @ rows.sample_weight)
