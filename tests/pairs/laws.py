"""Laws that every combination obeys which is not refused.

Laws on one run (the same by every engine, the lines and the account of what is sent, one answer of
the model) hold every combination. Those that need another run (another order, changed rows, the
ways of a user) are dealt out: each combination is held against one of them, in turn, and in the
long tests against all. A run that limits leave too little for must end so by every engine.
"""

from __future__ import annotations

import html
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from pandas import DataFrame

from fedcluster.core import Result, Task
from fedcluster.engines.wire import read_summaries, unpack
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.jobs import Evaluate, Fit, JobReport, clustering_of, model_of
from fedcluster.model import Model
from fedcluster_app.report.job_files import content_of
from pairs.factors import FILES, Combination
from pairs.ways import (
    CommandError,
    Found,
    commanded,
    fitted,
    invoke,
    predicted,
    speechless,
    tables,
    warned,
    with_odd_columns,
)
from pairs.worlds import MAKERS, Counted, World, frames, job_of, of_files, one_by_one, resumed, run

Frames = Mapping[str, DataFrame]
TOO_FEW = "the rows are too few for any mixture"
"""What is said of the rows that groups and limits leave."""


class Case:
    """A combination with all that is computed of it, once."""

    def __init__(self, job_name: str, c: Combination, place: int = 0) -> None:
        self.job_name, self.c, self.place = job_name, dict(c), place
        self.world = World(job_name, c, frames(c))
        self.job = job_of(self.world)

    @cached_property
    def equal_job(self) -> Any:
        """The job that needs nothing else of sites than its engine gives.

        A coordinator of secure sums sees sums only, and starts from these.
        """
        by_sums = self.c["engine"] == "secure" or not isinstance(self.job, Fit)
        if self.c["engine"] == "secure" and by_sums and hasattr(self.job, "sums_only"):
            return replace(self.job, sums_only=True)
        return self.job

    @cached_property
    def reference(self) -> JobReport:
        """What comes of it where each site is asked for itself."""
        self.counted = Counted(one_by_one(self.world, self.equal_job))
        return run(self.world, self.equal_job, self.counted)

    @cached_property
    def held_back(self) -> str:
        """Why nothing comes of it: limits may leave too little, which nobody foresees."""
        try:
            assert self.reference.sites
        except HeldBackError as error:
            return str(error)
        except InputError as error:
            if TOO_FEW not in str(error) or not self.hides_rows:
                raise
            return str(error)
        return ""

    @property
    def hides_rows(self) -> bool:
        """Whether groups or limits leave less than the rows that any mixture has enough of."""
        return self.world.client_is_grouped or self.c["site.limits"] != "none"

    @cached_property
    def by_engine(self) -> JobReport:
        """What comes of it over the combination's engine."""
        make = MAKERS[self.c["engine"]]
        if self.c["engine"].startswith("resumed"):
            if self.held_back:
                make = MAKERS[self.c["engine"]]
                return run(self.world, self.job, make(self.world, self.job))
            rounds = len(self.reference.outcome.communication_rounds)
            return resumed(self.world, self.job, make, (rounds + 1) // 3)
        self.engine = make(self.world, self.job)
        return run(self.world, self.job, self.engine)

    @cached_property
    def found(self) -> Found | None:
        """What a user of this machine has of it; None where its way has no words for it."""
        if self.job_name != "fit" or speechless(self.world, self.job):
            return None
        return fitted(self.world, self.job)

    def lines_sent(self) -> Iterator[tuple[str, Task, Any]]:
        """The weights of the lines of all answers, with the site and the task."""
        assert self.reference.sites
        for tasks, answers in self.counted.asked:
            for task, each in zip(tasks, answers, strict=True):
                for name, summary in each.by_site.items():
                    yield name, task, summary.weights

    def bytes_sent(self) -> dict[int, dict[str, int]]:
        """How many numbers each site's replies hold, by exchange; without the size of its rows."""
        assert self.by_engine.sites
        sent: dict[int, dict[str, int]] = {}
        for name, message, reply in self.engine.wire.log:
            question, answer = unpack(message)[0], unpack(reply)
            asked = [task["step"] for task in question["tasks"]]
            held = [_told(each) for each in read_summaries(answer[1])]
            size = bool(asked) and asked[0] == "SiteSize"
            if asked[size:]:
                sent.setdefault(question["exchange"], {})[name] = sum(held[size:])
        return sent

    @property
    def has_centres_at_one_place(self) -> bool:
        """Whether the sites were asked about centres that differ by rounding alone."""
        assert self.reference.sites
        asked = (task.state.centers for tasks, _ in self.counted.asked for task in tasks)
        return any(len(np.unique(np.round(each, 9), axis=0)) < len(each) for each in asked)

    @property
    def on_grid(self) -> bool:
        """Whether all sums are of rows on a grid, and exact."""
        usual = self.c.get("metric", "euclidean") == "euclidean"
        return self.hard and usual and self.c.get("model") in ("k-means", "plain")

    @property
    def hard(self) -> bool:
        """Whether each row is in one cluster, and sums are over rows by their cluster."""
        fuzzy = self.c.get("m", "None") != "None" or self.c.get("algorithm") == "ffcm"
        return not fuzzy and self.c.get("model") not in ("mixture", "fuzzy")

    @property
    def noisy(self) -> bool:
        """Whether answers have noise, which nobody can draw again."""
        return isinstance(self.job, Fit) and self.job.epsilon is not None


# The same bits by every engine


def told(report: JobReport) -> dict[str, Any]:
    """What a job has found, without who was asked."""
    value = report.outcome.value
    found: dict[str, Any] = {}
    if isinstance(report.job, Fit):
        result = clustering_of(value)
        found |= {"state": _state(result), "reason": result.reason}
    if hasattr(value, "table"):
        found |= {"k": value.n_clusters, "table": value.table, "says": value.says}
        found |= {f"state {k}": _state(each) for k, each in value.results.items()}
    if isinstance(value, Mapping):
        found["scores"] = dict(value)
    if report.profiles is not None:
        found["profiles"] = _without_sites(report.profiles.plain())
    if report.stability is not None:
        found["stability"] = report.stability.plain()
    if report.beside is not None:
        found["beside"] = {"rows": report.beside.rows, "weight": report.beside.weight}
    return found


def _state(result: Result) -> dict[str, Any]:
    state = result.state
    return {
        "centers": state.centers,
        "weights": state.weights,
        "inertia": state.inertia,
        "round": state.round,
        **{f"memory {name}": each for name, each in state.memory.items()},
    }


def _without_sites(plain: Any) -> Any:
    """Plain data without what is told by site."""
    if isinstance(plain, Mapping):
        return {k: _without_sites(each) for k, each in plain.items() if k != "sites"}
    return [_without_sites(each) for each in plain] if isinstance(plain, list | tuple) else plain


def differences(
    one: Any, other: Any, rtol: float = 0.0, where: str = "", *, floor: float = 0.0
) -> list[str]:
    """Where two results differ by more than a relative bound; 0 is for the same bits.

    The bound is relative to the largest number of an array, or to the floor.
    """
    if is_dataclass(one) and not isinstance(one, type):
        one, other = (
            {each.name: getattr(x, each.name) for each in fields(x)} for x in (one, other)
        )
    if isinstance(one, Mapping):
        if list(one) != list(other):
            return [f"{where}: {list(one)} and {list(other)}"]
        return [
            d for k in one for d in differences(one[k], other[k], rtol, f"{where} {k}", floor=floor)
        ]
    if isinstance(one, np.ndarray | float | np.floating):
        return _of_numbers(np.asarray(one, float), np.asarray(other, float), rtol, where, floor)
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{where}: {len(one)} and {len(other)} parts"]
        each = enumerate(zip(one, other, strict=True))
        return [
            d for i, (a, b) in each for d in differences(a, b, rtol, f"{where}[{i}]", floor=floor)
        ]
    return [] if one == other else [f"{where}: {one!r} and {other!r}"]


def _of_numbers(one: Any, other: Any, rtol: float, where: str, floor: float) -> list[str]:
    if one.shape != other.shape:
        return [f"{where}: shapes {one.shape} and {other.shape}"]
    if not rtol:
        same = np.array_equal(one, other, equal_nan=True)
    else:
        finite = np.abs(one[np.isfinite(one)])
        scale = max(finite.max(initial=0.0) if one.ndim else 0.0, floor)
        same = np.allclose(one, other, rtol=rtol, atol=rtol * scale, equal_nan=True)
    return [] if same else [f"{where}: {one.tolist()} and {other.tolist()}"]


BY_SUMS = 1e-7
"""Fixed-point sums have 48 bits; what is computed of them is compared to this relative bound."""


BY_TOL = 1e-6
"""The same of memberships and densities, which move on in each round: `tol` ends them, and by a
rounded sum a round later."""


NOTHING = 1e-6
"""What is compared in fixed point to the bound of this at least: 1e-32 is 0 there."""


def held_back_by_every_engine(case: Case) -> None:
    """Where limits leave too little, they do so by every engine."""
    try:
        assert case.by_engine.sites
    except (HeldBackError, SiteError):
        return
    except InputError as error:
        if str(error) != case.held_back:
            raise
        return
    raise AssertionError(f"{case.c['engine']} has a result, alone there is none: {case.held_back}")


def same_by_every_engine(case: Case) -> None:
    """The same bits; of sums in fixed point, a bound; of medians from totals, their steps.

    The cells in which the rows around a median are counted are as wide as the limits of all sites
    ask for, and nobody who sees totals knows how many sites there are.
    """
    if case.noisy:
        return
    by_secure = BY_SUMS if case.hard else BY_TOL
    bound = by_secure if case.c["engine"] == "secure" else 0.0
    one, other = told(case.reference), told(case.by_engine)
    if bound:  # a rounded sum may take a round more
        one, other = _without(one, ROUNDS), _without(other, ROUNDS)
    if case.c["engine"] == "secure":
        differ = [
            *_medians_apart(one, other),
            *differences(_without(one, MEDIANS), _without(other, MEDIANS), bound, floor=NOTHING),
        ]
    else:
        differ = differences(one, other, bound)
    assert not differ, f"{case.c['engine']}: {differ[:3]}"


MEDIANS = ("median", "median_step")


def _columns_of(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    profiles = found.get("profiles", {})
    every = [*profiles.get("clusters", ()), *([profiles["all"]] if profiles else ())]
    return [column for each in every for column in each["columns"] if "median" in column]


def _medians_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Medians that differ by more than the steps to which they are known."""
    pairs = zip(_columns_of(one), _columns_of(other), strict=True)
    return [
        f"median of {a['column']}: {a['median']} and {b['median']}"
        for a, b in pairs
        if abs(a["median"] - b["median"]) > 1.001 * max(a["median_step"], b["median_step"])
    ]


ROUNDS = ("round", "reason")


def _without(plain: Any, keys: Sequence[str]) -> Any:
    if isinstance(plain, Mapping):
        return {k: _without(each, keys) for k, each in plain.items() if k not in keys}
    return [_without(each, keys) for each in plain] if isinstance(plain, list) else plain


# What leaves a site


def least_rows(world: World, name: str) -> float:
    """The least that a line may weigh: what its owner asks for, in the lightest rows or persons.

    A person's rows that are in a line may be the lightest one alone.
    """
    limits = {**DEFAULT_LIMITS, **world.site["limits"]}
    grouped = world.client_is_grouped
    least = max(limits["min_cluster_size"], _groups(world)["p"] if grouped else 1)
    frame = world.frames[name]
    weight = frame["weight"] if world.site["weight_column"] else frame["weight"] * 0 + 1
    if world.site["group_column"]:
        weight = weight.groupby(frame["person"]).min()
    return float(weight.sort_values().iloc[:least].sum())


DEFAULT_LIMITS = {"min_rows": 2, "min_cluster_size": 2}
"""What stands in docs/site.md#site-file for a site file that says nothing."""


def _groups(world: World) -> dict[str, Any]:
    return {"p": 5, **world.site["groups"]}


BY_POWERS = r"FFCM|Fuzzy"
"""Steps whose lines weigh powers of memberships, which are less than the rows behind them."""
BY_SHARES = r"Trimmed|Mixture|Gaussian|Contingency|ClusterColumns"
"""Steps whose lines count a group by its share, see docs/what-leaves.md: of a text, a label, a
component, or of what is within a radius."""


def no_line_of_few_rows(case: Case) -> None:
    """Each line that leaves weighs at least as much as the rows that its owner asks for.

    Weights of a bootstrap sample count draws.
    """
    if case.noisy:
        return
    least_of = {name: least_rows(case.world, name) for name in case.world.frames}
    for name, task, weights in case.lines_sent():
        shares = BY_POWERS + (f"|{BY_SHARES}" if case.world.client_is_grouped else "")
        if re.search(shares, type(task.step).__name__) or task.resampled is not None:
            continue
        least, sent = least_of[name], weights[weights != 0]
        few = sent[sent < least * (1 - 1e-6)]
        where = f"{name}, round {task.state.round + 1}, {type(task.step).__name__}"
        assert not len(few), f"{where}: a line weighs {few.min():g}, the owner asks for {least:g}"


def account_is_of_the_bytes(case: Case) -> None:
    """What the account says was sent in each exchange is what the replies hold."""
    said = [dict(each.values_sent) for each in case.reference.outcome.communication_rounds]
    held = [_numbers(answers) for _, answers in case.counted.asked]
    assert said == held, f"the account says {said[:2]}, the answers hold {held[:2]}"
    if case.c["engine"] == "wire" and not case.noisy:
        said = [dict(each.values_sent) for each in case.by_engine.outcome.communication_rounds]
        held = list(case.bytes_sent().values())
        assert said == held, f"the account says {said[:2]}, the bytes hold {held[:2]}"


def _numbers(answers: Any) -> dict[str, int]:
    held: dict[str, int] = {}
    for each in answers:
        for name, summary in each.by_site.items():
            held[name] = held.get(name, 0) + _told(summary)
    return held


def _told(summary: Any) -> int:
    """Numbers of the lines that say something: their sums, and their weight."""
    return sum(1 + summary.sums.shape[1] for weight in summary.weights if weight != 0)


# Order


def in_any_order(case: Case) -> None:
    """Sites, rows and columns in another order: the same bits, or nearly.

    Sums over rows on a grid are exact, so that their order is in no bit of the centres. Errors
    about centres, prepared rows, memberships and densities lie on no grid. Groups are of neighbours
    in the order of rows; then the sites alone stand in another order. With noise, no two runs are
    alike. Where sites tell of fewer means than there are clusters, some centres begin at one place,
    and rounding says which of them a row is nearest to.
    """
    if case.noisy or case.has_centres_at_one_place:
        return
    world = _reordered(case.world, rows=not case.world.client_is_grouped)
    other = run(case.world, case.equal_job, one_by_one(world, case.equal_job))
    one, same = (told(each) for each in (case.reference, other))
    differ = []
    if case.c.get("prepare") == "none" and case.on_grid and "state" in one:
        differ = differences(*(_without(each["state"], ["inertia"]) for each in (one, same)))
    else:  # a rounded sum may take a round more
        one, same = (_without(each, ROUNDS) for each in (one, same))
    differ += differences(one, same, ROUNDED, floor=1.0)
    assert not differ, f"in another order: {differ[:3]}"


ROUNDED = 1e-8
"""Relative bound of what follows from sums that were rounded in another order."""


def _reordered(world: World, *, rows: bool) -> World:
    rng = np.random.default_rng(5)
    frames = {
        name: frame.iloc[rng.permutation(len(frame))].reset_index(drop=True) if rows else frame
        for name, frame in reversed(list(world.frames.items()))
    }
    return World(world.job_name, world.c, frames)


# Other rows with the same clusters


def _renamed(frames: Frames) -> Frames:
    return {f"of {name}": frame for name, frame in frames.items()}


def _moved(frames: Frames) -> Frames:
    return {name: frame.assign(x=frame["x"] + 64.0) for name, frame in frames.items()}


def _in_other_units(frames: Frames) -> Frames:
    return {name: frame.assign(y=frame["y"] * 4.0) for name, frame in frames.items()}


def _split(frames: Frames) -> Frames:
    """The first site in two, each with half of the persons."""
    (name, frame), *others = frames.items()
    half = frame["person"].isin(sorted(set(frame["person"]))[::2])
    parts = {name: frame[half], f"{name} too": frame[~half]}
    return {k: each.reset_index(drop=True) for k, each in parts.items()} | dict(others)


def _twice(frames: Frames) -> Frames:
    return {name: frame.loc[frame.index.repeat(2)] for name, frame in frames.items()}


def _heavier(frames: Frames) -> Frames:
    return {name: frame.assign(weight=2 * frame["weight"]) for name, frame in frames.items()}


def _well_posed(case: Case) -> bool:
    """Whether there are three clusters, far apart, that any search finds."""
    usual = {"n_clusters": "3", "metric": "euclidean", "model": "k-means", "trim": "0.0"}
    exact = case.c["algorithm"] in ("auto", "lloyd", "own") and case.c["max_iter"] != "3"
    known = case.c["init"] in ("auto", "summaries", "sums")
    return exact and known and not case.noisy and all(case.c[k] == v for k, v in usual.items())


def _ungrouped(case: Case) -> bool:
    return not case.world.client_is_grouped and case.c["site.limits"] == "none"


CHANGES: Mapping[str, tuple[Callable[[Frames], Frames], Callable[[Case], bool]]] = {
    "sites renamed": (_renamed, lambda case: True),
    "rows moved": (_moved, lambda case: case.c["prepare"] != "median"),  # bounds hold where it was
    "other units": (_in_other_units, lambda case: case.c["prepare"] in ("mean", "drop", "ignore")),
    "a site split": (_split, _ungrouped),
    "rows twice": (_twice, lambda case: case.c["site.limits"] == "none"),
    "weights of 2": (_heavier, lambda case: case.c["site.weight_column"] == "weight"),
}
"""Changes of rows, and where they leave the clusters as they are."""


def same_clusters_of_changed_rows(case: Case) -> None:
    """Rows that are moved, in other units, at other sites, or there twice, have their clusters."""
    if not _well_posed(case) or case.c["site.factors"] != "none" or case.c["source"] == "npz":
        return
    known = [name for name, (_, holds) in CHANGES.items() if holds(case)]
    name = known[zlib.crc32(repr(sorted(case.c.items())).encode()) % len(known)]
    world = World(case.job_name, case.c, CHANGES[name][0](case.world.frames))
    report = run(world, case.equal_job, one_by_one(world, case.equal_job))
    one = _clusters(model_of(case.reference), case.world)
    other = _clusters(model_of(report), world)
    shared = one.keys() & other.keys()
    pairs = {(one[key], other[key]) for key in shared}
    assert len(shared) == len(one), f"{name}: {len(one)} rows, then {len(shared)}"
    assert len(pairs) == len({a for a, _ in pairs}), f"{name}: {sorted(pairs)}"


def _clusters(model: Model, world: World) -> dict[str, int]:
    """The cluster of each row, by its number in all files."""
    return {
        key: int(label)
        for name, frame in world.frames.items()
        for key, label in zip(frame["id"], model.predict(frame[list(model.columns)]), strict=True)
    }


# One model, one answer


def one_model_one_answer(case: Case) -> None:
    """Labels of the rows of all sites, however they are asked for."""
    model = model_of(case.reference)
    path = case.world.folder / "model.json"
    model.save(path)
    loaded = Model.load(path)
    for name, frame in case.world.tables.items():
        given = frame[list(model.columns)]
        wanted = _as_fitted(case, model, name)
        for how, rows in {"in order": given, "shuffled": shuffled(given)}.items():
            labels = loaded.predict(rows)
            assert np.array_equal(labels, wanted), f"{name}: Model.load(..).predict, {how}"
    refuses_by_name(loaded.predict, given)


def shuffled(frame: Any) -> Any:
    """A table with its columns in another order, and one more."""
    rng = np.random.default_rng(1)
    more = frame.assign(unknown=rng.normal(size=len(frame)))
    return more[list(rng.permutation(more.columns))]


def refuses_by_name(predict: Callable[[Any], Any], frame: Any) -> None:
    """A missing column and one of another kind are refused by name."""
    for what, rows in {
        "a missing column": frame.drop(columns="y"),
        "text for numbers": frame.assign(y=["much"] * len(frame)),
    }.items():
        try:
            predict(rows)
        except (InputError, ValueError, TypeError, CommandError) as error:
            said = str(error)
            assert re.search(r"\by\b", said), f"{what} is refused without its name: {said}"
            assert len(said.splitlines()) < 3, f"{what} is refused in many lines: {said}"
        else:
            raise AssertionError(f"{what} is not refused")


def _as_fitted(case: Case, model: Model, name: str) -> Any:
    """The labels of a site's rows as the site itself finds them."""
    [site] = [each for each in case.world.site_files if each.name == name]
    raw = model.preprocessor is not None
    rows = site.client(list(model.columns), raw=raw).source
    return model.predict(rows.load() if hasattr(rows, "load") else rows)


# The ways of a user on one machine


def one_answer_by_every_way(case: Case) -> None:
    """Labels as they come with a fit, and by `predict` of all that a user has of it."""
    if case.found is None:
        return
    found, world = case.found, case.world
    loaded = Model.load(_saved(found.model, world))
    for name, frame in world.tables.items():
        if world.c["way"] in ("array", "sparse"):  # names are made
            frame = frame[world.values].set_axis(list(loaded.columns), axis=1)
        if world.c["way"] == "odd files":
            frame = with_odd_columns(frame)
        if world.c["way"] == "site files" and world.site["dates"]:  # made where the rows are
            labels = _as_fitted(case, loaded, name)
        else:
            labels = loaded.predict(shuffled(frame[list(loaded.columns)]))
        assert np.array_equal(labels, found.labels[name]), f"{name}: by the file of the model"
    if found.estimator is not None:
        given = tables(world)
        labels = found.estimator.predict(given)
        wanted = np.concatenate([found.labels[name] for name in given])
        assert np.array_equal(labels, wanted), "estimator.predict"
        assert np.array_equal(found.estimator.labels_, wanted), "estimator.labels_"
    else:
        for name, labels in predicted(world, found).items():
            assert np.array_equal(labels, found.labels[name]), f"{name}: fedcluster predict"


def commands_say_what_is_found(case: Case) -> None:
    """A choice of k, scores and profiles are the same where a command is asked for them.

    A command takes all labels that it is told of for the classes, and its own number of references.
    """
    world = case.world
    if speechless(world, case.job):
        return
    job = case.job
    if isinstance(job, Evaluate):
        classes = ("a", "b", "c") if "label_column" in world.parts else None
        job = replace(job, labels=False, classes=classes, n_references=REFERENCES)
    home = World(case.job_name, {**case.c, "engine": "local"}, world.frames)
    alone = of_files if case.c["way"] in FILES else partial(one_by_one, network=False)
    try:
        found = content_of(run(home, job, alone(home, job)))
    except HeldBackError:
        try:
            commanded(world, job)
        except CommandError:
            return
        raise
    said = commanded(world, job)
    wanted = json.loads(json.dumps({key: found[key] for key in SAID if key in found}))
    differ = differences(wanted, {key: said[key] for key in wanted})
    assert not differ, f"fedcluster {case.job_name}: {differ[:3]}"


REFERENCES: Any = next(each.default for each in fields(Evaluate) if each.name == "n_references")
SAID = (
    "n_clusters",
    "reason",
    "says",
    "table",
    "scores",
    "better",
    "profiles",
    "beside",
    "rounds",
    "missing",
)
"""What `--json` says, but for sites, whose own scores a command adds, and files."""


def _saved(model: Model, world: World) -> Any:
    path = world.folder / "of a way.json"
    model.save(path)
    return path


def same_words_everywhere(case: Case) -> None:
    """What was left out, dropped, filled or doubted stands on the screen and in all files."""
    if case.found is None:
        return
    found = case.found
    lost = _not_told(case)
    if found.folder is None:
        return
    page = " ".join(
        html.unescape(re.sub(r"<[^>]*>", "", (found.folder / "report.html").read_text())).split()
    )
    screen, content = " ".join(found.said.split()), found.content
    for line in (*content.get("prepared", ()), *content["warnings"]):
        line = " ".join(line.split())
        lost += [f"not on the screen: {line}"] if line not in screen else []
        lost += [f"not in the report: {line}"] if line not in page else []
    for line in warned(found.said):
        lost += [f"not in history.json: {line}"] if line not in content["warnings"] else []
    assert not lost, lost[:3]


def _not_told(case: Case) -> list[str]:
    """Missing values that nothing tells of, by their number; groups tell of their own."""
    world, found = case.world, case.found
    assert found is not None
    if world.site["protection"] == "groups":
        return []
    prepared = found.content.get("prepared", ()) if found.folder else ()
    if not prepared or case.c["missing"] != "True" or found.model.preprocessor is None:
        return []
    name, frame = next(iter(world.tables.items()))
    told = f"{frame['z'].isna().sum()} of z at {name}"
    return [] if any(told in line for line in prepared) else [f"not told: {told}"]


def a_report_made_later_says_the_same(case: Case) -> None:
    """It is that of the fit."""
    if case.found is None or case.found.folder is None:
        return
    folder = case.found.folder
    page = folder / "report.html"
    first = page.read_text()
    status, said = invoke("report", folder)
    assert status == 0, said
    assert page.read_text() == first, "fedcluster report: another page"


EVERY = {
    "same by every engine": same_by_every_engine,
    "no line of few rows": no_line_of_few_rows,
    "account of the bytes": account_is_of_the_bytes,
}
ORDER = {"in any order": in_any_order}
CHANGED = {"changed rows": same_clusters_of_changed_rows}
WAYS = {
    "one answer by every way": one_answer_by_every_way,
    "same words": same_words_everywhere,
    "report made later": a_report_made_later_says_the_same,
}
COMMANDED = {"commands": commands_say_what_is_found}
Laws = Mapping[str, Callable[[Case], None]]

ALWAYS: Mapping[str, Laws] = {
    "fit": {**EVERY, "one answer": one_model_one_answer},
    "select-k": EVERY,
    "evaluate": EVERY,
    "profile": EVERY,
}
"""Laws that every combination of a job is held against."""
IN_TURN: Mapping[str, Sequence[Laws]] = {
    "fit": [ORDER, CHANGED, WAYS],
    "select-k": [ORDER, COMMANDED],
    "evaluate": [ORDER, COMMANDED],
    "profile": [ORDER, COMMANDED],
}
"""Laws that need another run, which combinations are held against in turn."""


def laws_of(case: Case, *, all_laws: bool = False) -> Laws:
    """The laws that a combination is held against."""
    if case.held_back:
        return {"held back by every engine": held_back_by_every_engine}
    turns = IN_TURN[case.job_name]
    mine = turns if all_laws else [turns[case.place % len(turns)]]
    return {**ALWAYS[case.job_name], **{name: law for each in mine for name, law in each.items()}}
