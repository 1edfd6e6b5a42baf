"""Content of a run for its pages, as a job gives it or its files hold it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.errors import InputError
from fedcluster.preprocessing.columns import OTHER

FILES: Mapping[str, Sequence[str]] = {
    "model": ("algorithm", "centers", "columns", "weights"),
    "history": ("communication_rounds", "history", "rounds", "sites"),
    "selection": ("n_clusters", "reason", "says", "table", "warnings"),
    "scores": ("scores",),
    "profiles": ("profiles",),
}
"""Files that a page is made of, as far as they exist, and the keys that each must have."""
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Feature:
    """Values of the centres in one column, or in one level of a column of text.

    Parameters
    ----------
    name : str
        The column; of a level, COLUMN = LEVEL.
    values : ndarray of shape (k,)
        Each centre, in the column's units; of a level, its share.
    apart : ndarray of shape (k,)
        How far each centre lies from the mean of all rows, in spreads of the column.
    level : bool
        Whether it is the share of a level.
    spreads : ndarray of shape (k,), optional
        The standard deviation of each cluster's rows, where it is known.
    unit : float, optional
        What `apart` is measured in; nan where that is not a spread of all rows.
    """

    name: str
    values: Floats
    apart: Floats
    level: bool = False
    spreads: Floats | None = None
    unit: float = math.nan


@dataclass(frozen=True)
class Run:
    """Content of a run; a part that is not there is empty.

    Parameters
    ----------
    name : str
        The name of its folder.
    model, history, selection, scores, profiles : mapping
        The content of these files, whether or not they are written.
    """

    name: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, Any] = field(default_factory=dict)
    selection: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    profiles: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def account(self) -> Mapping[str, Any]:
        """Return the content that describes rounds and sites."""
        return self.history or self.selection or self.scores

    @cached_property
    def rounds(self) -> Sequence[Mapping[str, Any]]:
        """Return the rounds with the sites."""
        return list(self.account.get("communication_rounds", ()))

    @cached_property
    def sites(self) -> Sequence[Mapping[str, Any]]:
        """Return the sites, with their metadata and what each sent."""
        return list(self.account.get("sites", self.model.get("sites", ())))

    @cached_property
    def weights(self) -> Floats:
        """Return the weight of the rows behind each centre, (k,)."""
        return np.array(self.model.get("weights", ()), dtype=np.float64)

    @property
    def k(self) -> int:
        """Return the number of clusters, 0 where there is no model."""
        return len(self.weights)

    @cached_property
    def own_profiles(self) -> Mapping[str, Any]:
        """Return the profiles of these clusters; empty without any."""
        files = (self.profiles, self.scores, self.history)
        profiles = (file.get("profiles") or NOTHING for file in files)
        return next((each for each in profiles if self._is_of_these(each)), NOTHING)

    @cached_property
    def stability(self) -> Mapping[str, Any]:
        """Return how stable these clusters are; empty if it is not known."""
        stability = self.history.get("stability") or NOTHING
        return stability if self._is_of_these(stability) else NOTHING

    def _is_of_these(self, content: Mapping[str, Any]) -> bool:
        """Return whether a content describes as many clusters as there are."""
        return len(content.get("clusters", ())) == self.k > 0

    @cached_property
    def counts(self) -> Floats | None:
        """Return the rows of each site in each cluster, (sites, k); None where it is not known."""
        by_site = [site.get("clusters") for site in self.sites]
        if by_site and all(each is not None and len(each) == self.k for each in by_site):
            return np.array(by_site, dtype=np.float64)
        if not self.own_profiles or not self.sites:
            return None
        clusters = [cluster["sites"] for cluster in self.own_profiles["clusters"]]
        names = [site["name"] for site in self.sites]
        if any(site.get("secure") for site in self.sites):  # all together only
            return None
        return np.array([[each.get(name, 0.0) for each in clusters] for name in names])

    @cached_property
    def hidden(self) -> Sequence[float]:
        """Return the share of each site's rows that limits hid, nan where it is not known.

        Where the rows are it is the largest share in one message; over a network, that of the rows
        which no sum of the profiles stands for.
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

    @cached_property
    def sizes(self) -> Floats:
        """Return the rows of each cluster, (k,), or what they weigh where only that is known."""
        sizes: Floats = self.weights if self.counts is None else self.counts.sum(axis=0)
        return sizes

    @cached_property
    def n_rows(self) -> float:
        """Return the rows of all sites, those in no cluster too, as far as it is known."""
        rows = [float(site.get("rows", math.nan)) for site in self.sites]
        known = bool(rows) and math.isfinite(sum(rows))
        return sum(rows) if known else float(self.sizes.sum())

    @cached_property
    def names(self) -> Sequence[str]:
        """Return the names of the clusters, (k,); empty without names."""
        proposed = [cluster["name"] for cluster in self.own_profiles.get("clusters", ())]
        return list(self.model.get("names") or proposed)

    @cached_property
    def features(self) -> Sequence[Feature]:
        """Return the centres by column and level; with profiles, the means of the rows."""
        if self.own_profiles:
            return list(_profiled(self.own_profiles))
        return _features(self.model) if self.k else ()

    @property
    def by_spread(self) -> bool:
        """Return whether `Feature.apart` is in spreads of the rows, not of the centres alone."""
        return bool(self.own_profiles) or _standard(self.model)


def read_run(folder: Path) -> Run:
    """Read the files of a run.

    Parameters
    ----------
    folder : Path
        The folder that a job wrote, or that of a run of a federation that has ended, which says
        where that is.

    Raises
    ------
    InputError
        If there is no such file, or one is damaged.
    """
    folder = written_by(folder)
    paths = {name: folder / f"{name}.json" for name in FILES}
    content = {name: _read(path, name) for name, path in paths.items() if path.is_file()}
    if not content:
        named = ", ".join(f"{name}.json" for name in FILES)
        raise InputError(f"{folder} holds no result (none of {named}); name the folder of --out")
    return Run(folder.resolve().name, **content)


def outcome_of(folder: Path) -> dict[str, Any]:
    """Return how a run ended and where its files are; nothing while it goes on."""
    if not (folder / "job.json").is_file():  # a folder that a job wrote
        return {"done": True, "out": str(folder)}
    path = folder / "outcome.json"
    if not path.is_file():
        return {}
    with damaged(path):
        return dict(json.loads(path.read_text("utf-8")))


def written_by(folder: Path) -> Path:
    """Return where the files of a run are: in the folder itself, or where its outcome says."""
    if not (outcome := outcome_of(folder)):
        raise InputError(f"{folder} has not ended; follow it with fedcluster watch {folder}")
    with damaged(folder / "outcome.json"):
        if not outcome["done"]:
            raise InputError(f"{folder} has no result: {outcome['error']}")
        return Path(outcome["out"])


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Raise an error which says that a file is damaged, for one that cannot be understood."""
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
    """Return a number of a file, where null stands for nan."""
    return math.nan if x is None else float(x)


def _standard(model: Mapping[str, Any]) -> bool:
    scaled = "preprocessing" in model and _prepare(model).get("scale") == "standard"
    return scaled and not model["preprocessing"].get("unit")  # rows of length 1 spread otherwise


def _prepare(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how the rows were to be prepared; for an estimator, that may be the scale alone."""
    prepare = model["algorithm"].get("prepare") or NOTHING
    return {"scale": prepare} if isinstance(prepare, str) else prepare


def _features(model: Mapping[str, Any]) -> list[Feature]:
    """Return the centres by column and level, in units and in spreads."""
    centers = np.array(model["centers"], dtype=np.float64)
    weights = np.array(model["weights"], dtype=np.float64)
    preprocessing = model.get("preprocessing")
    if preprocessing is None:
        return [
            Feature(name, values, _in_spreads(values, weights))
            for name, values in zip(model["columns"], centers.T, strict=True)
        ]
    units = model["centers_in_units"]
    factors = _prepare(model).get("weights", NOTHING)
    features: list[Feature] = []
    for column in preprocessing["columns"]:
        name = column["name"]
        if column["kind"] == "number":
            values = np.array(units[name], dtype=np.float64)
            bent = np.log1p(values) if column["log"] else values
            spread = column["scale"] * math.sqrt(factors.get(name, 1.0))
            apart = _in_spreads(bent, weights, spread if _standard(model) else None)
            features.append(Feature(name, values, apart))
        else:
            features += _levels(column, units, weights)
    return features


def _profiled(profiles: Mapping[str, Any]) -> Iterator[Feature]:
    """Yield the columns and levels of profiles."""
    clusters = [{c["column"]: c for c in each["columns"]} for each in profiles["clusters"]]
    for every in profiles["all"]["columns"]:
        name = every["column"]
        own = [cluster[name] for cluster in clusters]
        if every["kind"] == "number":
            means, spreads = (_array(own, key) for key in ("mean", "spread"))
            unit = math.nan if every["spread"] is None else every["spread"]
            yield _feature(name, means, spreads, (every["mean"], unit), level=False)
        for level, share in every.get("shares", NOTHING).items():
            shares = _array([each["shares"] for each in own], level)
            p = 0.0 if share is None else share
            spreads = np.sqrt(shares * (1 - shares))
            overall = (p, math.sqrt(max(p * (1 - p), 0.0)))
            yield _feature(f"{name} = {level}", shares, spreads, overall, level=True)


def _array(own: Sequence[Mapping[str, Any]], key: str) -> Floats:
    """Return a number of each cluster, nan if it is not known."""
    return np.array([math.nan if each[key] is None else each[key] for each in own])


def _feature(
    name: str, values: Floats, spreads: Floats, overall: tuple[float, float], *, level: bool
) -> Feature:
    """Return a feature from the mean and the spread of each cluster, and of all rows."""
    mean, unit = overall
    known = np.isfinite(values) & (unit > 0)
    apart = np.where(known, (values - (mean or 0.0)) / (unit if unit > 0 else 1.0), 0.0)
    return Feature(name, values, apart, level, spreads, unit)


def _levels(
    column: Mapping[str, Any], units: Mapping[str, Any], weights: Floats
) -> Iterator[Feature]:
    """Yield the shares of the levels of a column of text."""
    for level in [*column["levels"], *([OTHER] if column["other"] else [])]:
        shares = np.clip(np.array(units[f"{column['name']}={level}"], dtype=np.float64), 0.0, 1.0)
        p = float(weights @ shares / max(weights.sum(), 1e-300))
        apart = _in_spreads(shares, weights, math.sqrt(p * (1 - p)))
        yield Feature(f"{column['name']} = {level}", shares, apart, level=True)


def _in_spreads(values: Floats, weights: Floats, spread: float | None = None) -> Floats:
    """Return how far values lie from their weighted mean, in a spread, by default their own.

    Examples
    --------
    >>> _in_spreads(np.array([1.0, 3.0]), np.array([5.0, 5.0]), 4.0)
    array([-0.25,  0.25])
    """
    total = weights.sum()
    if not total > 0:
        return np.zeros_like(values)
    moved = values - weights @ values / total
    spread = math.sqrt(float(weights @ moved**2 / total)) if spread is None else spread
    apart: Floats = moved / spread if spread > 0 else np.zeros_like(values)
    return apart
