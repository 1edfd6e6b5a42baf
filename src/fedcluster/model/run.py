"""Content of a run for its pages, from a job or from its files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.errors import InputError
from fedcluster.model.profiles import (
    ColumnProfile,
    NumberProfile,
    Profiles,
    TextProfile,
    is_zero_or_one,
    proposed,
)
from fedcluster.preprocessing.columns import OTHER
from fedcluster.texts import command_line

FILES: Mapping[str, Sequence[str]] = {
    "model": ("algorithm", "centers", "columns", "weights"),
    "history": ("communication_rounds", "history", "rounds", "sites"),
    "selection": ("n_clusters", "reason", "says", "table", "warnings"),
    "scores": ("scores",),
    "profiles": ("profiles",),
    "comparison": ("comparison",),
}
"""Files from which a page is made, if they exist, with their required keys."""
NOTHING: Mapping[str, Any] = {}
INFINITE_EFFECT = 1e9
"""Value of an infinite effect, as without any spread."""


@dataclass(frozen=True)
class Feature:
    """Values of the clusters in one column, or in one level of a column of text.

    Parameters
    ----------
    column : str
        The column.
    values : ndarray of shape (k,)
        Each cluster, in the column's units; of a level, its share.
    overall : float
        The same of all rows.
    apart : ndarray of shape (k,)
        The distance of each cluster from all rows, in spreads of the column.
    effects : ndarray of shape (k,)
        The difference between each cluster and all others, as the absolute value of Cohen's d.
    level : str, optional
        The level whose share it is.
    other : str, optional
        The other level of a column with two, which this feature describes too.
    spreads : ndarray of shape (k,), optional
        The standard deviation of each cluster's rows, if known.
    unit : float, optional
        The unit of `apart`.
    """

    column: str
    values: Floats
    overall: float
    apart: Floats
    effects: Floats
    level: str = ""
    other: str = ""
    spreads: Floats | None = None
    unit: float = math.nan

    @property
    def name(self) -> str:
        """The column; for a level, COLUMN = LEVEL."""
        return f"{self.column} = {self.level}" if self.level else self.column

    def seen_from(self, j: int) -> Feature:
        """Return the feature for the level that cluster j has more often, if there are two."""
        if not self.other or not self.values[j] < self.overall:
            return self
        shares, rest = 1.0 - self.values, 1.0 - self.overall
        return replace(
            self, values=shares, overall=rest, apart=-self.apart, level=self.other, other=self.level
        )


@dataclass(frozen=True)
class Run:
    """Content of a run; missing parts are empty.

    Parameters
    ----------
    name : str
        The name of its folder.
    model, history, selection, scores, profiles, comparison : mapping
        The content of these files, whether or not they are written.
    date : str
        The day of the run, in words.
    """

    name: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, Any] = field(default_factory=dict)
    selection: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    profiles: Mapping[str, Any] = field(default_factory=dict)
    comparison: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""

    @property
    def version(self) -> str:
        """The version of fedcluster that made the model."""
        return str(self.model.get("fedcluster_version", ""))

    @cached_property
    def account(self) -> Mapping[str, Any]:
        """The content that describes rounds and sites."""
        return self.history or self.selection or self.scores

    @cached_property
    def rounds(self) -> Sequence[Mapping[str, Any]]:
        """The rounds with the sites."""
        return list(self.account.get("communication_rounds", ()))

    @cached_property
    def sites(self) -> Sequence[Mapping[str, Any]]:
        """The sites, with their metadata and what each sent."""
        return list(self.account.get("sites", self.model.get("sites", ())))

    @cached_property
    def weights(self) -> Floats:
        """The weight of the rows of each cluster, (k,)."""
        return np.array(self.model.get("weights", ()), dtype=np.float64)

    @property
    def k(self) -> int:
        """The number of clusters, 0 if there is no model."""
        return len(self.weights)

    @cached_property
    def own_profiles(self) -> Mapping[str, Any]:
        """The profiles of these clusters; empty if there are none."""
        files = (self.profiles, self.scores, self.history)
        profiles = (file.get("profiles") or NOTHING for file in files)
        return next((each for each in profiles if self._is_of_these(each)), NOTHING)

    @cached_property
    def outcomes(self) -> Sequence[Mapping[str, Any]]:
        """The comparisons of these clusters by outcomes; empty if there are none."""
        found = self.comparison.get("comparison", NOTHING).get("outcomes", ())
        return found if all(map(self._is_of_these, found)) else ()

    @cached_property
    def stability(self) -> Mapping[str, Any]:
        """The stability of these clusters; empty if unknown."""
        stability = self.history.get("stability") or NOTHING
        return stability if self._is_of_these(stability) else NOTHING

    def _is_of_these(self, content: Mapping[str, Any]) -> bool:
        """Return whether a content describes the same number of clusters."""
        return len(content.get("clusters", ())) == self.k > 0

    @cached_property
    def counts(self) -> Floats | None:
        """The number of rows of each site in each cluster, (sites, k); None if unknown."""
        by_site = [site.get("clusters") for site in self.sites]
        if by_site and all(each is not None and len(each) == self.k for each in by_site):
            return np.array(by_site, dtype=np.float64)
        if not self.own_profiles or not self.sites:
            return None
        clusters = [cluster["sites"] for cluster in self.own_profiles["clusters"]]
        names = [site["name"] for site in self.sites]
        # with secure sums, only totals are known
        if any(site.get("secure") for site in self.sites):
            return None
        return np.array([[each.get(name, 0.0) for each in clusters] for name in names])

    @cached_property
    def hidden(self) -> Sequence[float]:
        """The share of each site's rows that limits hid, nan if unknown.

        For local rows, it is the largest share in one message; over a network, the share of the
        rows that are in no sum of the profiles.
        """
        there = None if self.counts is None else self.counts.sum(axis=1)
        shares = []
        for i, site in enumerate(self.sites):
            if "rows_held_back" in site:
                shares.append(site["rows_held_back"] / site["rows"] if site["rows"] else math.nan)
            elif self.own_profiles and there is not None and site.get("weight"):
                shares.append(min(max(1.0 - float(there[i]) / site["weight"], 0.0), 1.0))
            else:
                shares.append(math.nan)
        return shares

    @property
    def unseen(self) -> float:
        """The share of all rows that limits hid from the last round; nan if unknown."""
        every = sum(site.get("weight") or math.nan for site in self.sites)
        leaves_out = any(self.model.get("algorithm", NOTHING).get(how) for how in ("trim", "noise"))
        return math.nan if leaves_out or not self.sites else 1 - float(self.weights.sum()) / every

    @cached_property
    def sizes(self) -> Floats:
        """The number of rows of each cluster, (k,), or their weight if only that is known."""
        sizes: Floats = self.weights if self.counts is None else self.counts.sum(axis=0)
        return sizes

    @cached_property
    def n_rows(self) -> float:
        """The number of rows of all sites, including rows of no cluster if these are known."""
        rows = [float(site.get("rows", math.nan)) for site in self.sites]
        known = bool(rows) and math.isfinite(sum(rows))
        return sum(rows) if known else float(self.sizes.sum())

    @cached_property
    def names(self) -> Sequence[str]:
        """Return the names of the clusters, (k,): those given, else what sets each apart."""
        named = [cluster["name"] for cluster in self.own_profiles.get("clusters", ())]
        return list(self.model.get("names") or named or self._by_centers[0])

    @cached_property
    def features(self) -> Sequence[Feature]:
        """Return the clusters by column and level, by the profiles of their rows or the centres."""
        return list(_profiled(self.own_profiles)) if self.own_profiles else self._by_centers[1]

    @cached_property
    def _by_centers(self) -> tuple[Sequence[str], Sequence[Feature]]:
        """Return names and features of the clusters from their centres alone."""
        if not self.k or "centers" not in self.model:
            return (), ()
        columns = list(_of_centers(self.model))
        profiles = Profiles({"": self.weights}, tuple(profile for profile, _ in columns))
        return proposed(profiles), [each for _, features in columns for each in features]

    def facts(self, j: int, most: int) -> list[Feature]:
        """Return the largest differences of a cluster, one feature per column.

        For a text column, it is the level whose share exceeds that in all rows the most.
        """
        by_column: dict[str, Feature] = {}
        for each in (feature.seen_from(j) for feature in self.features):
            best = by_column.setdefault(each.column, each)
            if each.values[j] - each.overall > best.values[j] - best.overall:
                by_column[each.column] = each
        telling = [each for each in by_column.values() if each.effects[j] >= Profiles.slight]
        return sorted(telling, key=lambda each: -each.effects[j])[:most]

    @property
    def by_spread(self) -> bool:
        """Whether the spread of the rows in each column is known, not estimated."""
        return bool(self.own_profiles) or _standard(self.model)


def day_of(seconds: float) -> str:
    """Return the day of a time in seconds since 1970, in words.

    Examples
    --------
    >>> day_of(1.8e9)
    '15 January 2027'
    """
    day = date.fromtimestamp(seconds)
    return f"{day.day} {day:%B} {day.year}"


def read_run(folder: Path) -> Run:
    """Read the files of a run.

    Parameters
    ----------
    folder : Path
        The folder that a job wrote, or that of a federation's finished run, which refers to it.

    Raises
    ------
    InputError
        If there is no such file, or one is damaged.
    """
    folder = written_by(folder)
    paths = {name: folder / f"{name}.json" for name in FILES}
    content = {name: _read(path, name) for name, path in paths.items() if path.is_file()}
    if not content.keys() - {"comparison"}:  # whose outcomes are of the clusters of a fit beside it
        named = ", ".join(f"{name}.json" for name in FILES if name != "comparison")
        raise InputError(f"{folder} holds no result (none of {named}); name the folder of --out")
    made = min(path.stat().st_mtime for path in paths.values() if path.is_file())
    return Run(folder.resolve().name, **content, date=day_of(made))


def outcome_of(folder: Path) -> dict[str, Any]:
    """Return how a run ended and where its files are; nothing if it has not ended."""
    if not (folder / "job.json").is_file():  # folders without job.json were not written by a job
        return {"done": True, "out": "."}
    path = folder / "outcome.json"
    if not path.is_file():
        return {}
    with damaged(path):
        return dict(json.loads(path.read_text("utf-8")))


def written_by(folder: Path) -> Path:
    """Return where a run's files are: in the folder itself, or where its outcome says."""
    if not (outcome := outcome_of(folder)):
        how = command_line("watch", folder)
        raise InputError(f"{folder} has not ended; follow it with {how}")
    with damaged(folder / "outcome.json"):
        if not outcome["done"]:
            raise InputError(f"{folder} has no result: {outcome['error']}")
        return folder / str(outcome["out"])


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Raise an error that calls a file damaged, for one that cannot be understood."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def _read(path: Path, name: str) -> Mapping[str, Any]:
    """Return the content of a file, checked for its format and keys."""
    with damaged(path):
        content: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        if content["format"] != f"fedcluster-{name}":
            raise ValueError(f"its format is {content['format']!r}, not fedcluster-{name}")
        if lacking := [key for key in FILES[name] if key not in content]:
            raise ValueError(f"it has no {lacking[0]!r}")
        return content


def finite(x: Any) -> float:
    """Return a number from a file, in which null stands for nan."""
    return math.nan if x is None else float(x)


def _standard(model: Mapping[str, Any]) -> bool:
    scaled = "preprocessing" in model and _prepare(model).get("scale") == "standard"
    # the spread of rows scaled to unit length means something else
    return scaled and not model["preprocessing"].get("unit")


def _prepare(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the specified preparation of rows; for an estimator, possibly only the scale."""
    prepare = model["algorithm"].get("prepare") or NOTHING
    return {"scale": prepare} if isinstance(prepare, str) else prepare


def _of_centers(model: Mapping[str, Any]) -> Iterator[tuple[ColumnProfile, list[Feature]]]:
    """Yield the profile and the features of each column, derived from the centres.

    The spread of all rows is that by which a column was scaled, or an estimate from the inertia,
    divided equally among columns. Cohen's d follows, as it depends only on the total sum of
    squares.
    """
    centers, weights = (np.array(model[key], dtype=np.float64) for key in ("centers", "weights"))
    inertia, n = finite(model.get("inertia")), max(float(weights.sum()), 1e-300)
    squares = inertia > 0 and model["algorithm"].get("model") != "mixture"
    own = inertia / (n * max(centers.shape[1], 1)) if squares else 0.0
    preprocessing = model.get("preprocessing")
    if preprocessing is None:
        for name, values in zip(model["columns"], centers.T, strict=True):
            yield _number_of_centers(name, values, values, weights, own=own)
        return
    units = model["centers_in_units"]
    factors = _prepare(model).get("weights", NOTHING)
    for column in preprocessing["columns"]:
        name = column["name"]
        if column["kind"] == "number":
            values = np.array(units[name], dtype=np.float64)
            bent = np.log1p(values) if column["log"] else values
            spread = column["scale"] * math.sqrt(factors.get(name, 1.0))
            known = spread if _standard(model) else None
            yield _number_of_centers(
                name,
                values,
                bent,
                weights,
                own=own * column["scale"] ** 2,
                known=known,
                log=column["log"],
            )
        else:
            levels = [*column["levels"], *([OTHER] if column["other"] else [])]
            shares = np.array([units[f"{name}={level}"] for level in levels], dtype=np.float64)
            counts = np.clip(shares, 0.0, 1.0).T * weights[:, None]
            every = np.vstack([counts, counts.sum(axis=0)])
            profile = TextProfile(name, tuple(levels), np.append(weights, weights.sum()), every)
            yield profile, _level_features(name, levels, profile.shares, profile.effects)


def _number_of_centers(
    name: str,
    values: Floats,
    bent: Floats,
    weights: Floats,
    *,
    own: float,
    known: float | None = None,
    log: bool = False,
) -> tuple[ColumnProfile, list[Feature]]:
    """Return a numeric column from the centres; ``bent`` are its values in scaled form."""
    total = max(float(weights.sum()), 1e-300)
    mean = float(weights @ bent) / total
    between = float(weights @ (bent - mean) ** 2) / total
    within = own if known is None else max(known**2 - between, 0.0)
    spread = math.sqrt(between + within)
    spreads = np.append(np.full(len(weights), math.sqrt(within)), spread)
    nothing = np.full(len(spreads), np.nan)
    profile = NumberProfile(
        name, np.append(weights, total), np.append(bent, mean), spreads, nothing, nothing
    )
    apart = (bent - mean) / spread if spread > 0 else np.zeros_like(bent)
    overall = math.expm1(mean) if log else float(weights @ values) / total
    effects = np.nan_to_num(profile.effects, nan=0.0, posinf=INFINITE_EFFECT)
    levels = ("", "") if log else _zero_or_one(mean, spread)
    return profile, [Feature(name, values, overall, apart, effects, *levels, unit=spread)]


def _zero_or_one(mean: float, spread: float) -> tuple[str, str]:
    """Return the levels of a number that is 0 or 1, empty for others: its mean is a share."""
    return ("1", "0") if is_zero_or_one(mean, spread) else ("", "")


def _level_features(
    name: str, levels: Sequence[str], shares: Floats, effects: Floats, *, spread: bool = False
) -> list[Feature]:
    """Return the levels of a text column, only one of two; the last shares are those overall."""
    features = []
    effects = np.nan_to_num(effects, nan=0.0, posinf=INFINITE_EFFECT)
    pair = len(levels) == 2
    for i in range(1 if pair else 0, len(levels)):
        own, p = shares[:-1, i], float(np.nan_to_num(shares[-1, i]))
        unit = math.sqrt(max(p * (1 - p), 0.0))
        known = np.isfinite(own) & (unit > 0)
        apart = np.where(known, (own - p) / (unit if unit > 0 else 1.0), 0.0)
        spreads = np.sqrt(own * (1 - own)) if spread else None
        other = levels[0] if pair else ""
        features.append(Feature(name, own, p, apart, effects, levels[i], other, spreads, unit))
    return features


def _profiled(profiles: Mapping[str, Any]) -> Iterator[Feature]:
    """Yield the columns and levels of profiles."""
    clusters = [{c["column"]: c for c in each["columns"]} for each in profiles["clusters"]]
    for every in profiles["all"]["columns"]:
        name = every["column"]
        own = [cluster[name] for cluster in clusters]
        effects = np.array([_effect(each) for each in own])
        if every["kind"] == "number":
            means, spreads = (_array(own, key) for key in ("mean", "spread"))
            mean, unit = finite(every["mean"]), finite(every["spread"])
            known = np.isfinite(means) & (unit > 0)
            apart = np.where(known, (means - mean) / (unit if unit > 0 else 1.0), 0.0)
            pair = _zero_or_one(mean, unit)
            yield Feature(name, means, mean, apart, effects, *pair, spreads=spreads, unit=unit)
        levels = list(every.get("shares", NOTHING))
        entries = [each.get("shares", NOTHING) for each in [*own, every]]
        shares = np.array([[finite(each[level]) for level in levels] for each in entries])
        yield from _level_features(name, levels, shares, effects, spread=True)


def _effect(column: Mapping[str, Any]) -> float:
    """Return the effect of a column; infinite and unknown ones are both null in a file."""
    effect = column.get("effect")
    if effect is not None:
        return float(effect)
    entries = column.get("mean") if column["kind"] == "number" else column.get("association") == 1
    return INFINITE_EFFECT if entries else 0.0


def _array(own: Sequence[Mapping[str, Any]], key: str) -> Floats:
    """Return a number of each cluster, nan if unknown."""
    return np.array([finite(each[key]) for each in own])
