"""Laws that every combination obeys which is not refused.

Laws on one run (the same by every engine, the lines and the account of what is sent, one answer of
the model) hold every combination. Those that need another run (another order, the ways of a user)
are dealt out: each combination is held against one of them, in turn, and in the long tests against
all. A run that limits leave too little for must end so by every engine. What follows from changed
rows is in `test_metamorphic.py`, and how new rows are refused in `test_new_rows.py`.
"""

import html
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedcluster.engines.wire import read_summaries, unpack
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.jobs import Evaluate, Fit, JobReport, clustering_of, model_of
from fedcluster.model import Model
from fedcluster.model.outcomes import Comparison
from fedcluster_app.report.job_files import content_of
from pairs import ways, worlds
from pairs.factors import FILES, Combination

TOO_FEW = "the rows are too few for any mixture"
"""What is said of the rows that groups and limits leave."""
BY_SUMS, BY_TOL = 1e-7, 1e-6
"""Relative bounds of what is computed of fixed-point sums, which have 48 bits. Memberships and
densities move on in each round: `tol` ends them, and by a rounded sum a round later."""
ROUNDED = 1e-8
"""Relative bound of what follows from sums that were rounded in another order."""
NOTHING = 1e-6
"""What is compared in fixed point to the bound of this at least: 1e-32 is 0 there."""
SAID = (
    *("n_clusters", "reason", "says", "table", "scores", "better", "profiles", "beside", "rounds"),
    *("missing", "comparison"),
)
"""What ``--json`` says, but for sites, whose own scores a command adds, and files."""
ROUNDS = ("round", "reason")
MEDIANS = ("median", "median_step")
BY_SITE = ("by_site", "odds_ratio_by_site", "corrected", "ranks")
"""What is told of outcomes within sites, which secure sums do not know; Holm's correction of both
tests; and ranks, from cells that are as wide as the limits of all sites ask for."""
BY_POWERS = r"FFCM|Fuzzy"
"""Steps whose lines weigh powers of memberships, which are less than the rows behind them."""
BY_SHARES = r"Trimmed|Mixture|Gaussian|Contingency|ClusterColumns"
"""Steps whose lines count a group by its share, see docs/what-leaves.md: of a text, a label, a
component, or of what is within a radius."""


class Case:
    """A combination with all that is computed of it, once."""

    def __init__(self, job_name: str, c: Combination, place: int = 0) -> None:
        self.job_name, self.c, self.place = job_name, dict(c), place
        self.world = worlds.World(job_name, c, worlds.frames(c))
        self.job = worlds.job_of(self.world)
        fuzzy = c.get("m", "None") != "None" or c.get("algorithm") == "ffcm"
        self.hard = not fuzzy and c.get("model") not in ("mixture", "fuzzy")
        # with noise, which nobody can draw again
        self.noisy = isinstance(self.job, Fit) and self.job.epsilon is not None

    @cached_property
    def equal_job(self) -> Any:
        """The job as a coordinator of secure sums does it, who starts from sums."""
        sums = self.c["engine"] == "secure" and hasattr(self.job, "sums_only")
        return replace(self.job, sums_only=True) if sums else self.job

    @cached_property
    def reference(self) -> JobReport:
        """What comes of it where each site is asked for itself."""
        self.counted = worlds.Counted(worlds.one_by_one(self.world, self.equal_job))
        return worlds.run(self.world, self.equal_job, self.counted)

    @cached_property
    def held_back(self) -> str:
        """Why nothing comes of it: limits may leave too little, which nobody foresees."""
        try:
            assert self.reference.sites
        except HeldBackError as error:
            return str(error)
        except InputError as error:
            hides_rows = self.world.client_is_grouped or self.c["site.limits"] != "none"
            if TOO_FEW not in str(error) or not hides_rows:
                raise
            return str(error)
        return ""

    @cached_property
    def by_engine(self) -> JobReport:
        make = worlds.MAKERS[self.c["engine"]]
        if self.c["engine"].startswith("resumed") and not self.held_back:
            rounds = len(self.reference.outcome.communication_rounds)
            return worlds.resumed(self.world, self.job, make, (rounds + 1) // 3)
        self.engine = make(self.world, self.job)
        return worlds.run(self.world, self.job, self.engine)

    @cached_property
    def found(self) -> ways.Found | None:
        """What a user of this machine has of it; None where its way has no words for it."""
        return None if ways.speechless(self.world) else ways.fitted(self.world)


# The same bits by every engine


def told(report: JobReport) -> dict[str, Any]:
    """What a job has found, without who was asked."""
    value, found = report.outcome.value, dict[str, Any]()
    if isinstance(report.job, Fit):
        result = clustering_of(value)
        found |= {"state": result.state, "reason": result.reason}
    if hasattr(value, "table"):
        found |= {"k": value.n_clusters, "table": value.table, "says": value.says}
        found |= {f"state {k}": each.state for k, each in value.results.items()}
    if isinstance(value, Mapping):
        found["scores"] = dict(value)
    if isinstance(value, Comparison):
        found["comparison"] = value
    for name in ("profiles", "stability"):
        if getattr(report, name) is not None:
            found[name] = getattr(report, name).plain()
    if report.since is not None:
        found["since"] = report.since
    if report.beside is not None:
        found["beside"] = {"rows": report.beside.rows, "weight": report.beside.weight}
    return found


def leaves(x: Any, without: Collection[str] = (), where: str = "") -> Iterator[tuple[str, Any]]:
    """What a result is made of, by its place; without what some keys hold."""
    if is_dataclass(x) and not isinstance(x, type):
        x = {each.name: getattr(x, each.name) for each in fields(x)}
    if isinstance(x, list | tuple):
        x = dict(enumerate(x))
    if not isinstance(x, Mapping):
        yield where, x
        return
    for key, value in x.items():
        if key not in without:
            yield from leaves(value, without, f"{where} {key}")


def differences(one: Any, other: Any, rtol=0.0, without: Any = (), floor=0.0) -> list[str]:
    """Where two results differ by more than a relative bound; 0 is for the same bits.

    The bound is relative to the largest number of an array, or to the floor.
    """
    one, other = (dict(leaves(each, without)) for each in (one, other))
    if list(one) != list(other):
        return [f"{sorted(one.keys() ^ other.keys())} or their order"]
    pairs = ((where, value, other[where]) for where, value in one.items())
    return [f"{where}: {a!r} and {b!r}" for where, a, b in pairs if not same(a, b, rtol, floor)]


def same(a: Any, b: Any, rtol: float, floor: float) -> bool:
    if not isinstance(a, np.ndarray | float | np.floating):
        return bool(a == b)
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.shape != b.shape or not rtol:
        return np.array_equal(a, b, equal_nan=True)
    largest = np.abs(a[np.isfinite(a)]).max(initial=0.0) if a.ndim else 0.0
    return np.allclose(a, b, rtol=rtol, atol=rtol * max(largest, floor), equal_nan=True)


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

    The cells in which the rows around a median, or at a time, are counted are as wide as the limits
    of all sites ask for, and nobody who sees totals knows how many sites there are.
    """
    if case.noisy:
        return
    one, other = told(case.reference), told(case.by_engine)
    differ = []
    if case.c["engine"] != "secure":
        differ = differences(one, other, without=["sites"])
    elif case.c.get("time", "None") == "None":  # a rounded sum may take a round more
        bound = BY_SUMS if case.hard else BY_TOL
        differ = differences(one, other, bound, ("sites", *ROUNDS, *MEDIANS, *BY_SITE), NOTHING)
        a, b = (dict(leaves(each, ["sites"])) for each in (one, other))
        for where in (name for name in a if name.endswith("median")):
            step = max(each[f"{where}_step"] for each in (a, b))
            differ += [where] * (abs(a[where] - b[where]) > 1.001 * step)
    assert not differ, f"{case.c['engine']}: {differ[:3]}"


# What leaves a site


def least_rows(world: worlds.World, name: str) -> float:
    """The least that a line may weigh: what its owner asks for, in the lightest rows or persons.

    A person's rows that are in a line may be the lightest one alone.
    """
    least = world.site["limits"].get("min_cluster_size", 2)  # as docs/site.md says
    if world.client_is_grouped:
        least = max(least, world.site["groups"].get("p", 5))
    frame = world.frames[name]
    weight = frame["weight"] if world.site["weight_column"] else frame["weight"] * 0 + 1
    if world.site["group_column"]:
        weight = weight.groupby(frame["person"]).min()
    return float(weight.sort_values().iloc[:least].sum())


def no_line_of_few_rows(case: Case) -> None:
    """Each line that leaves weighs at least as much as the rows that its owner asks for.

    Weights of a bootstrap sample count draws.
    """
    if case.noisy:
        return
    assert case.reference.sites
    least_of = {name: least_rows(case.world, name) for name in case.world.frames}
    shares = BY_POWERS + (f"|{BY_SHARES}" if case.world.client_is_grouped else "")
    for tasks, answers in case.counted.asked:
        for task, each in zip(tasks, answers, strict=True):
            step = type(task.step).__name__
            if re.search(shares, step) or task.resampled is not None:
                continue
            for name, summary in each.by_site.items():
                sent = summary.weights[summary.weights != 0]
                few = sent[sent < least_of[name] * (1 - 1e-6)]
                where = f"{name}, round {task.state.round + 1}, {step}"
                assert not len(few), f"{where}: a line weighs {few.min():g}, not {least_of[name]:g}"


def account_is_of_the_bytes(case: Case) -> None:
    """What the account says was sent in each exchange is what the replies hold."""
    assert case.reference.sites
    held = []
    for _, answers in case.counted.asked:
        sent = [(name, _told(s)) for each in answers for name, s in each.by_site.items()]
        held.append({name: sum(n for at, n in sent if at == name) for name, _ in sent})
    said = [dict(each.values_sent) for each in case.reference.outcome.communication_rounds]
    assert said == held, f"the account says {said[:2]}, the answers hold {held[:2]}"
    if case.c["engine"] != "wire" or case.noisy:
        return
    said = [dict(each.values_sent) for each in case.by_engine.outcome.communication_rounds]
    by_exchange: dict[int, dict[str, int]] = {}
    for name, message, reply in case.engine.wire.log:
        question, answer = unpack(message)[0], unpack(reply)
        asked = [task["step"] for task in question["tasks"]]
        size = asked[:1] == ["SiteSize"]  # which is not counted
        if asked[size:]:
            numbers = [_told(each) for each in read_summaries(answer[1])]
            by_exchange.setdefault(question["exchange"], {})[name] = sum(numbers[size:])
    held = list(by_exchange.values())
    assert said == held, f"the account says {said[:2]}, the bytes hold {held[:2]}"


def _told(summary: Any) -> int:
    """Numbers of the lines that say something: their sums, and their weight."""
    return sum(1 + summary.sums.shape[1] for weight in summary.weights if weight != 0)


# Order


def in_any_order(case: Case) -> None:
    """Sites and rows in another order: the same bits, or nearly.

    Sums over rows on a grid are exact, so that their order is in no bit of the centres. Errors
    about centres, prepared rows, memberships and densities lie on no grid. Groups are of neighbours
    in the order of rows; then the sites alone stand in another order. With noise, no two runs are
    alike. Where sites tell of fewer means than there are clusters, some centres begin at one place,
    and rounding says which of them a row is nearest to.
    """
    assert case.reference.sites
    asked = (task.state.centers for tasks, _ in case.counted.asked for task in tasks)
    at_one_place = any(len(np.unique(np.round(c, 9), axis=0)) < len(c) for c in asked)
    if case.noisy or at_one_place:
        return
    rng, rows = np.random.default_rng(5), dict[str, Any]()
    for name, frame in reversed(list(case.world.frames.items())):
        turned = frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)
        rows[name] = frame if case.world.client_is_grouped else turned
    world = worlds.World(case.job_name, case.c, rows)
    other = worlds.run(case.world, case.equal_job, worlds.one_by_one(world, case.equal_job))
    a, b = (told(each) for each in (case.reference, other))
    usual = case.c.get("metric", "euclidean") == "euclidean" and case.c.get("prepare") == "none"
    if usual and case.hard and case.c.get("model") in ("k-means", "plain") and "state" in a:
        differ = differences(a["state"], b["state"], without=["inertia"])
        differ += differences(a, b, ROUNDED, ["sites"], 1.0)
    else:  # a rounded sum may take a round more
        differ = differences(a, b, ROUNDED, ["sites", *ROUNDS], 1.0)
    assert not differ, f"in another order: {differ[:3]}"


# One model, one answer


def one_model_one_answer(case: Case) -> None:
    """Labels of the rows of all sites by the file of the model, however their columns stand."""
    model = model_of(case.reference)
    loaded = _loaded(model, case.world)
    for name, frame in case.world.tables.items():
        wanted = _as_fitted(case, model, name)
        for rows in (frame[list(model.columns)], _shuffled(frame[list(model.columns)])):
            assert np.array_equal(loaded.predict(rows), wanted), f"{name}: Model.load(..).predict"


def _loaded(model: Model, world: worlds.World) -> Model:
    model.save(world.folder / "of a fit.json")
    return Model.load(world.folder / "of a fit.json")


def _shuffled(frame: Any) -> Any:
    rng = np.random.default_rng(1)
    more = frame.assign(unknown=rng.normal(size=len(frame)))
    return more[list(rng.permutation(more.columns))]


def _as_fitted(case: Case, model: Model, name: str) -> Any:
    """The labels of a site's rows as the site itself finds them."""
    [site] = [each for each in case.world.site_files if each.name == name]
    rows = site.client(list(model.columns), raw=model.preprocessor is not None).source
    return model.predict(rows.load() if hasattr(rows, "load") else rows)


# The ways of a user on one machine


def one_answer_by_every_way(case: Case) -> None:
    """Labels as they come with a fit, and by `predict` of all that a user has of it."""
    found, world = case.found, case.world
    if found is None:
        return
    loaded = _loaded(found.model, world)
    for name, frame in world.tables.items():
        if world.c["way"] in ("array", "sparse"):  # names are made
            frame = frame[world.values].set_axis(list(loaded.columns), axis=1)
        if world.c["way"] == "odd files":
            frame = ways.with_odd_columns(frame)
        if world.c["way"] == "site files" and world.site["dates"]:  # made where the rows are
            labels = _as_fitted(case, loaded, name)
        else:
            labels = loaded.predict(_shuffled(frame[list(loaded.columns)]))
        assert np.array_equal(labels, found.labels[name]), f"{name}: by the file of the model"
    if found.estimator is not None:
        given = ways.tables(world)
        labels = found.estimator.predict(given)
        wanted = np.concatenate([found.labels[name] for name in given])
        assert np.array_equal(labels, wanted), "estimator.predict"
        assert np.array_equal(found.estimator.labels_, wanted), "estimator.labels_"
        return
    for name, labels in ways.predicted(world, found).items():
        assert np.array_equal(labels, found.labels[name]), f"{name}: fedcluster predict"


def commands_say_what_is_found(case: Case) -> None:
    """A choice of k, scores and profiles are the same where a command is asked for them.

    A command takes all labels that it is told of for the classes, and its own number of references.
    """
    world, job = case.world, case.job
    if ways.speechless(world):
        return
    if isinstance(job, Evaluate):
        classes = ("a", "b", "c") if "label_column" in world.parts else None
        usual = Evaluate(job.model).n_references
        job = replace(job, labels=False, classes=classes, n_references=usual)
    home = worlds.World(case.job_name, {**case.c, "engine": "local"}, world.frames)
    alone = worlds.of_files if case.c["way"] in FILES else partial(worlds.one_by_one, network=False)
    try:
        found = content_of(worlds.run(home, job, alone(home, job)))
    except HeldBackError:
        try:
            ways.commanded(world)
        except ways.CommandError:
            return
        raise
    said = ways.commanded(world)
    wanted = json.loads(json.dumps({key: found[key] for key in SAID if key in found}))
    differ = differences(wanted, {key: said[key] for key in wanted})
    assert not differ, f"fedcluster {case.job_name}: {differ[:3]}"


def same_words_everywhere(case: Case) -> None:
    """What was left out, dropped, filled or doubted stands on the screen and in all files.

    So do missing values, by their number; groups tell of their own.
    """
    found, world = case.found, case.world
    if found is None or found.folder is None:
        return
    page = html.unescape(re.sub(r"<[^>]*>", "", (found.folder / "report.html").read_text()))
    places = {"screen": " ".join(found.said.split()), "report": " ".join(page.split())}
    prepared, warnings = found.content.get("prepared", ()), found.content["warnings"]
    lines = [" ".join(line.split()) for line in (*prepared, *warnings)]
    lost = [
        f"{line}: not in {at}" for line in lines for at, text in places.items() if line not in text
    ]
    doubts = re.findall(r"^warning: (.*)$", found.said, re.MULTILINE)
    lost += [f"not in history.json: {line}" for line in doubts if line not in warnings]
    grouped = world.site["protection"] == "groups" or bool(world.site["privacy"])
    if prepared and case.c["missing"] == "True" and found.model.preprocessor and not grouped:
        name, frame = next(iter(world.tables.items()))
        told = f"{frame['z'].isna().sum()} of z at {name}"
        lost += [f"not told: {told}"] * (not any(told in line for line in prepared))
    assert not lost, lost[:3]


Laws = Mapping[str, Callable[[Case], None]]
ALWAYS: Laws = {
    "same by every engine": same_by_every_engine,
    "no line of few rows": no_line_of_few_rows,
    "account of the bytes": account_is_of_the_bytes,
}
ORDER: Laws = {"in any order": in_any_order}
WAYS: Laws = {"one answer by every way": one_answer_by_every_way, "words": same_words_everywhere}
COMMANDED: Laws = {"commands": commands_say_what_is_found}


def laws_of(case: Case, *, all_laws: bool = False) -> Laws:
    """The laws that a combination is held against: of those that need another run, in turn."""
    if case.held_back:
        return {"held back by every engine": held_back_by_every_engine}
    of_fit = case.job_name == "fit"
    laws = {**ALWAYS, **({"one answer": one_model_one_answer} if of_fit else {})}
    turns = (ORDER, WAYS if of_fit else COMMANDED)
    for law in turns if all_laws else [turns[case.place % len(turns)]]:
        laws |= law
    return laws
