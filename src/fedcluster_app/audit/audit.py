"""The audit: every attack against a site as it is protected, and as it could be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from warnings import catch_warnings

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster import __version__
from fedcluster.core import Data, Floats
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import FewGroupsWarning, InputError, listed
from fedcluster.jobs import execute, fit_of
from fedcluster.kernels import nearest
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.texts import Table
from fedcluster_app.audit import _asking as asking
from fedcluster_app.audit import _combining as combining
from fedcluster_app.audit import _histories as histories
from fedcluster_app.audit._asking import seeds_that_are_rows
from fedcluster_app.audit._combining import dump
from fedcluster_app.audit._site import (
    LIMITS,
    AttackedSite,
    AttackRun,
    Coordinator,
    Protection,
    Public,
    Score,
    public_of,
    simulated,
    split,
    values_of,
)
from fedcluster_app.site.file import SiteFile
from fedcluster_app.wire.policy import PolicyLimits


@dataclass(frozen=True, slots=True)
class Advantage:
    """Advantage in inferring membership: the true positive rate minus the false positive rate.

    Parameters
    ----------
    value : float
        1 if membership is certain, 0 for guessing.
    margin : float
        Half the width of the 95 % interval.
    """

    value: float
    margin: float


def membership(play: AttackRun, most: int | None = None) -> Advantage:
    """Return how well distances to groups, or seeds, distinguish rows of the site from others.

    The first ``most`` rows of both are used, by default all.
    """
    public = play.public
    answers = [dump(play.coordinator), seeds_that_are_rows(play.coordinator)]
    lines = answers[0][:, :-1] / np.maximum(answers[0][:, -1:], 1e-300)
    points = np.concatenate([lines, answers[1][:, :-1]]) / public.width
    mine, others = (
        np.where(np.isnan(v), public.middle, v) / public.width
        for v in (
            values_of(d, public)[:most, :-1] for d in (play.subject.rows, play.subject.others)
        )
    )
    if not len(points):
        return Advantage(0.0, 0.0)
    tree = scipy.spatial.cKDTree(points)
    near = [tree.query(rows)[0] for rows in (mine, others)]
    return _advantage(near[0], near[1])


def canaries(subject: AttackedSite, public: Public, rng: Generator) -> Advantage:
    """Return how well planted canaries can be distinguished from others.

    A canary is a row with numbers drawn independently and uniformly from the public ranges, so that
    most are far from all rows.
    """
    # Largest number of canaries, which have made-up values, inside and outside the site.
    most = min(40, len(subject.rows), len(subject.others))
    place = [public.place(j) for j in range(len(public.numbers))]

    def given(rows: Data) -> Data:
        X = rows.X.copy()
        X[:most, place] = rng.uniform(public.low, public.high, (most, len(place)))
        return replace(rows, X=X)

    with_canaries = replace(subject, rows=given(subject.rows), others=given(subject.others))
    return membership(AttackRun(with_canaries, public), most)


def _advantage(mine: Floats, others: Floats) -> Advantage:
    """Return the advantage of a threshold chosen on one half and applied to the other."""
    chosen, used = ([each[i::2] for each in (mine, others)] for i in range(2))
    cuts = np.unique(np.concatenate(chosen))
    gain = [(chosen[0] <= cut).mean() - (chosen[1] <= cut).mean() for cut in cuts]
    cut = cuts[int(np.argmax(gain))]
    shares = [(each <= cut).mean() for each in used]
    margin = 1.96 * sum(s * (1 - s) / len(u) for s, u in zip(shares, used, strict=True)) ** 0.5
    return Advantage(float(shares[0] - shares[1]), float(margin))


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack: a way to read rows.

    Parameters
    ----------
    name : str
        Its name in tables.
    play : callable
        Returns claims of rows, (m, d + 1), or how many values it read.
    promised : bool, default=True
        Whether groups promise that it reads nothing.
    """

    name: str
    play: Callable[[AttackRun], Floats | int]
    promised: bool = True


def _asked(name: str, attack: Callable[[Coordinator], Floats]) -> Attack:
    return Attack(name, lambda play: attack(play.coordinator))


ATTACKS = (
    _asked("seeds that are rows", asking.seeds_that_are_rows),
    _asked("batches of one row", asking.batches_of_one),
    _asked("sums about far centres", asking.far_centres),
    _asked("thresholds of a tree", asking.thresholds_of_a_tree),
    _asked("moments of leaves", asking.moments_of_leaves),
    _asked("texts that few have", asking.rare_texts),
    _asked("numbers taken for texts", asking.guessed_numbers),
    _asked("nested intervals", asking.nested_intervals),
    _asked("labels at many cuts", asking.labels_at_cuts),
    _asked("fuzzy sums, nearly hard", asking.fuzzy_near_hard),
    _asked("pairs of clusters", asking.pairs_of_clusters),
    _asked("counts from offsets", asking.counts_from_offsets),
    _asked("kinks of indices", asking.kinks_of_indices),
    _asked("random directions", asking.random_directions),
    _asked("clipped products", asking.clipped_products),
    _asked("products of columns", asking.products_of_columns),
    _asked("missing, filled twice", asking.missing_values),
    _asked("values alone in a sum", combining.values_alone),
    Attack("answers of a run, paired", combining.pairs_of_a_run),
    Attack("trajectories of a run", combining.trajectories),
    Attack("random equations", combining.equations),
    Attack("other columns and scales", combining.other_columns),
    Attack("a row removed", histories.removed_rows),
    Attack("a row added", histories.added_rows),
    Attack("a row changed", histories.changed_rows),
    Attack("twenty versions", histories.many_versions),
    Attack("a column edited often", histories.edited_rows),
    Attack("a unit wrong, mended", histories.three_versions),
    Attack("persons named later", histories.persons_named_later),
    Attack("persons renamed", histories.renamed_persons),
    Attack("older groups put back", histories.older_groups),
    Attack("a second study", histories.second_study),
    Attack("means for each session", histories.means_of_sessions),
    Attack("a row that waits", histories.a_row_that_waits),
    Attack("rows as names of columns", histories.names_that_are_values),
    Attack("rounded counts undone", histories.rounded_counts),
    Attack("swaps under a budget", histories.beyond_the_noise),
    Attack("steps in preparations", histories.steps_in_preparations),
    Attack("secure sums without it", combining.smaller_cohort),
    Attack("a rule and corrections", histories.a_rule_and_corrections, promised=False),
    Attack("all rows but one known", combining.all_rows_but_one, promised=False),
)
"""All attacks, by their names in tables."""

PROTECTIONS = (
    Protection("limits 5", filters=LIMITS),
    *(Protection(f"groups {p}", Groups(p)) for p in (3, 5, 10)),
)
"""Alternative protections of a site."""
QUALITY_RUNS = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of one attack.

    Parameters
    ----------
    attack : str
        Its name.
    promised : bool
        Whether groups promise that it reads nothing.
    score : Score
        The score.
    asked, refused : int
        Number of tasks, and of those that the site did not answer.
    """

    attack: str
    promised: bool
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
        The number of rows of the attacked site.
    readings : tuple of Reading
        One for each attack.
    membership : Advantage
        How well rows of the site can be distinguished from others.
    canaries : Advantage
        The same for made-up rows, far from most others, half of which the site was given.
    quality : float
        Exact inertia of the centres found on groups, relative to that of an exact fit; None
        under a privacy budget, where a fit needs public bounds.
    """

    protection: str
    n_rows: int
    readings: tuple[Reading, ...]
    membership: Advantage
    canaries: Advantage
    quality: float | None

    @property
    def worst(self) -> int:
        """The largest number of rows read by an attack against which groups give a guarantee."""
        return max((each.score.read for each in self.readings if each.promised), default=0)


def audit(
    data: Data,
    protections: Sequence[Protection] = PROTECTIONS,
    *,
    n_clusters: int = 8,
    seed: int = 0,
    attacks: Sequence[Attack] = ATTACKS,
) -> Iterator[Audit]:
    """Run every attack against a site with these rows, under each protection.

    Parameters
    ----------
    data : Data
        The unprepared rows. The site never has a random fifth of them, on which hits by chance are
        counted.
    protections : sequence of Protection
        The protections of the site's rows.
    n_clusters : int, default=8
        k for the fits whose inertia is compared.
    seed : int, default=0
        Seed of the random fifth.
    attacks : sequence of Attack
        The attacks.
    """
    rng = np.random.default_rng(seed)
    mine, others = split(data, rng)
    public = public_of(data)
    for protection in protections:
        with TemporaryDirectory() as folder:
            subject = AttackedSite(mine, others, protection, Path(folder))
            yield Audit(
                protection.name,
                len(mine),
                tuple(played(attack, subject, public) for attack in attacks),
                membership(AttackRun(_apart(subject, "membership"), public)),
                canaries(_apart(subject, "canaries"), public, np.random.default_rng(seed)),
                quality(mine, public, protection, n_clusters, seed),
            )


def rows_of(path: Path | None, most: int, seed: int) -> tuple[Data, tuple[Protection, ...]]:
    """Return the rows of a site, or simulated rows, and the protections, its own first.

    Parameters
    ----------
    path : Path, optional
        The site's file.
    most : int
        The largest number of rows; if there are more, a sample of this size is drawn.
    seed : int
        Seed of the draws.

    Raises
    ------
    InputError
        If the rows cannot be read, or no column is numeric.
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
    groups = site.groups if site.is_grouped else None
    now = Protection("as it is", groups, site.disclosure, site.policy, site.label_column)
    return data, (now, *PROTECTIONS)


def played(attack: Attack, subject: AttackedSite, public: Public) -> Reading:
    """Return the result of an attack on a site that has not answered any request before."""
    subject = _apart(subject, attack.name)
    play = AttackRun(subject, public)
    found = attack.play(play)
    score = Score(found, found) if isinstance(found, int) else subject.truth(public).score(found)
    return Reading(attack.name, attack.promised, score, play.asked, play.refused)


def _apart(subject: AttackedSite, name: str) -> AttackedSite:
    folder = subject.folder / name.replace(" ", "-")
    folder.mkdir()
    return AttackedSite(subject.rows, subject.others, subject.protection, folder)


def quality(data: Data, public: Public, protection: Protection, k: int, seed: int) -> float | None:
    """Return the exact inertia of centres found under a protection, relative to an exact fit.

    It is for numbers in standard deviations, with missing values filled in by the mean, without
    columns in which nearly all rows agree; the median over five restarts.
    """
    if Disclosure.of(protection.filters).budget is not None:
        return None
    X = data.X[:, [c.name in public.numbers for c in public.columns]].astype(np.float64)
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    # Smallest share of rows with a value other than the most common one, in a column to cluster by.
    X = X[:, (np.median(X, axis=0) != X).mean(axis=0) > 0.05]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows, groups = Data(X, data.sample_weight, groups=data.groups), protection.groups
    if groups is not None:  # columns without names cannot be marked as sensitive
        groups = replace(groups, sensitive=(), diversity=1)
    clients = (
        Client("north", rows, protection.filters, groups),
        Client("north", rows, ()),
    )
    found = [
        np.median([_inertia(client, rows, k, seed + i) for i in range(QUALITY_RUNS)])
        for client in clients
    ]
    return float(found[0] / found[1])


def _inertia(client: Client, rows: Data, k: int, seed: int) -> float:
    # the cost of small groups is measured here, so no warning
    with catch_warnings(action="ignore", category=FewGroupsWarning):
        fit = execute(fit_of(k, seed=seed), LocalEngine([client])).outcome.value
    squared = nearest(rows.X, fit.state.centers)[1]
    return float(squared.sum() if rows.sample_weight is None else squared @ rows.sample_weight)


def audit_table(audits: Sequence[Audit]) -> Table:
    """Return a table of what each attack reads under each protection, membership, and J."""
    by_attack = zip(*(each.readings for each in audits), strict=True)
    rows = [(shown_name(readings[0]), *map(_cell, readings)) for readings in by_attack]
    rows += [
        ("advantage, members", *(_shown(each.membership) for each in audits)),
        ("advantage, canaries", *(_shown(each.canaries) for each in audits)),
        ("J / J of an exact fit", *(_ratio(each.quality) for each in audits)),
    ]
    return Table(
        f"Rows that each attack reads, of {audits[0].n_rows:,}",
        ("attack", *(each.protection for each in audits)),
        tuple(rows),
    )


def shown_name(reading: Reading) -> str:
    """Return the name of an attack, with a note if groups promise nothing against it."""
    return reading.attack + ("" if reading.promised else " (no promise)")


def _ratio(quality: float | None) -> str:
    return "none" if quality is None else f"{quality:.4f}"


def _shown(advantage: Advantage) -> str:
    return f"{advantage.value:.2f}±{advantage.margin:.2f}".replace("±0", "±")


def _cell(reading: Reading) -> str:
    """Return the number of rows read exactly and, with a +, of those right when rounded."""
    score = reading.score
    if reading.asked and reading.refused == reading.asked:
        return "refused"
    more = f" (+{score.near - score.read:,})" if score.near > score.read else ""
    return f"{score.read:,}{more}"


def sentences(audits: Sequence[Audit]) -> Iterator[str]:
    """Yield the meaning of the numbers in sentences."""
    for each in audits:
        alike = max(reading.score.alike for reading in each.readings)
        line = f"{each.protection}: at most {each.worst:,} of {each.n_rows:,} rows by one attack"
        shared = f"; {alike:,} more have values that as many share as are in a group"
        yield f"{line}{shared if alike else ''}."
    yield signed(audits[0], datetime.now(UTC).date())


def signed(audit: Audit, day: date) -> str:
    """Return the findings of a site's audit in a sentence that a person can sign."""
    promised = [each for each in audit.readings if each.promised]
    attacks = f"{len(promised)} attack{'s' * (len(promised) != 1)}"
    n_questions = sum(each.asked for each in audit.readings)
    found = "none of them read a row"
    if reading := [each.attack for each in promised if each.score.read]:
        found = f"{listed(reading)} read up to {audit.worst:,} rows"
    return (
        f"On {day}, fedcluster {__version__} played {attacks} against {audit.n_rows:,} "
        f"rows of this site with its protection ({audit.protection}), in {n_questions:,} "
        f"questions: {found}{''.join(unpromised(asdict(audit)))}."
    )


def unpromised(audit: Mapping[str, Any]) -> Iterator[str]:
    """Yield what attacks of an audit read against which groups promise nothing, as clauses."""
    for each in audit["readings"]:
        if (n := each["score"]["read"]) and not each["promised"]:
            yield f"; {each['attack']}, against which groups promise nothing, read {n:,}"


def content(audits: Sequence[Audit]) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {"audits": [{**asdict(each), "worst": each.worst} for each in audits]}
