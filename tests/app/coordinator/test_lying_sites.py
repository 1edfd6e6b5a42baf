"""Sites that lie: what a coordinator believes of them, and what is done about the rest."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris
from test_replies import Bend, Postman

from benchmarks.lying_sites import LIES, LyingEngine
from fedcluster import FederatedKMeans, algorithms, metrics
from fedcluster.algorithms import KFed, Lloyd
from fedcluster.core import Answers, Column, Data, SiteInfo, State, Summary, Task
from fedcluster.core.engine import WrappedEngine
from fedcluster.core.ranges import Bounded, Box, allowed_of
from fedcluster.engines import LocalEngine, wire
from fedcluster.engines.client import Client
from fedcluster.engines.reply_validation import ReplyBounds, check_answer, implausible
from fedcluster.engines.wire import WireError
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import JobReport, execute, fit_of, procedure_of
from fedcluster.jobs.doubts import influence_line
from fedcluster.kernels import nearest
from fedcluster.metrics.moments import Means, Squares
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.columns import Category, NumericColumn
from fedcluster.preprocessing.moments import Missing, Principal
from fedcluster.privacy import Groups
from fedcluster.recipes.robust import Robust, Trimmed, _spread, apart, majority, median
from fedcluster.rounds import server_update
from fedcluster_app.coordinator.folder import (
    Federation,
    create,
    described,
    first_rows,
    keep_first_rows,
)
from fedcluster_app.coordinator.run_job import located, run_job
from fedcluster_app.coordinator.runs import content_without
from fedcluster_app.report.job_files import write_job
from fedcluster_app.wire.recorder import RecordedEngine
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

pytestmark = pytest.mark.usefixtures("short_searches")

SITES = ("north", "south")
RNG = np.random.default_rng(19)


# What a federation states of its sites


def stating(folder: Path, text: str) -> Path:
    """The file of a federation that states something of its sites."""
    path = create(folder, SITES, "127.0.0.1:8443").file("federation.toml")
    path.write_text(path.read_text() + text)
    return path


def test_stated_rows_and_ranges_are_read_as_they_were_written(tmp_path: Path) -> None:
    ranges = {'a "b"\\c, ü': (-1.5, 1e3), "age": (0.0, 120.0)}
    stated = '[rows]\nnorth = 5000\n[ranges]\n"a \\"b\\"\\\\c, ü" = [-1.5, 1000]\nage = [0, 120]\n'
    path = stating(tmp_path / "f", stated)
    read = Federation.load(tmp_path / "f")
    assert (dict(read.rows), dict(read.ranges)) == ({"north": 5000.0}, ranges)
    path.write_bytes(described(read))
    assert Federation.load(tmp_path / "f") == read


def test_a_federation_without_bounds_has_none(tmp_path: Path) -> None:
    assert "\n[" not in stating(tmp_path / "f", "").read_text()
    read = Federation.load(tmp_path / "f")
    assert (read.rows, read.ranges) == ({}, {})


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("[rows]\nwest = 50", "rows of 'west': the federation has no such site"),
        ("[rows]\nnorth = 0", "rows of 'north' must be a number above 0"),
        ("[rows]\nnorth = nan", "rows of 'north' must be a number above 0"),
        ("[ranges]\nage = [120, 0]", "the bounds of 'age' must go up, not from 120 to 0"),
        ("[ranges]\nage = [0, inf]", "the bounds of 'age' must be numbers"),
        ("[ranges]\nage = [0]", r"federation.toml: ranges.age must be a list of 2, not \[0\]"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(stated, reason, tmp_path: Path) -> None:
    stating(tmp_path / "f", stated)
    with pytest.raises(InputError, match=reason):
        Federation.load(tmp_path / "f")


# What an answer can say about rows within ranges

RANGES = {"age": (0.0, 120.0), "dose": (-1.0, 400.0)}
COLUMNS = (Column("age"), Column("dose"), Column("sex", "text", ("F", "M", "X")))
AGE, DOSE = NumericColumn("age"), NumericColumn("dose")
TURN = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0][:2]
PREPROCESSORS = {
    "scaled": Preprocessor((NumericColumn("age", shift=40.0, scale=-0.5 + 20.0), DOSE)),
    "bent": Preprocessor(
        (
            NumericColumn("age", bounds=(18.0, 90.0), log=True, shift=3.0, scale=0.3),
            NumericColumn("dose", bounds=(-9.0, 7.0), scale=3.0),
        )
    ),
    "filled": Preprocessor((NumericColumn("age", fill=-30.0), NumericColumn("dose", fill=500.0))),
    "text": Preprocessor((AGE, Category("sex", ("F", "M"), other=True, fill="F", scale=0.7))),
    "turned": Preprocessor(
        (AGE, DOSE, Category("sex", ("F",), fill="F")),
        principal=Principal((40.0, 9.0, 0.5), tuple(map(tuple, TURN.tolist())), (1.0, 1.0)),
        missing="drop",
    ),
    "ignored": Preprocessor((AGE, DOSE), missing="ignore"),
    "unit": Preprocessor((AGE, NumericColumn("dose", shift=-2.0)), missing="drop", unit=True),
}
STEPS: dict[str, Any] = {
    "lloyd": algorithms.Lloyd(),
    "fuzzy": algorithms.FFCM(),
    "fuzzy, of sites": algorithms.FFCM(averaging="avg_2", local="converge", support="u"),
    "spherical": algorithms.SphericalKMeans(),
    "trimmed": algorithms.TrimmedLloyd(0.1),
    "incomplete": algorithms.IncompleteKMeans(),
    "summaries": algorithms.SiteSummaries(9, 2, 4),
    "tree": algorithms.VarianceTree(8, passes=1),
    "fkm": algorithms.FKM(3),
    "kfed": algorithms.KFed(3),
    "fedavg": algorithms.FedAvg(),
    "inertia": metrics.Inertia(),
    "means": Means(),
    "squares": Squares(),
    "missing": Missing(),
}


def within_ranges(seed: int, gaps: Sequence[int] = ()) -> Data:
    """Rows at the ends of their ranges and between, some with a weight of their own."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 90))
    shares = rng.beta(0.3, 0.3, size=(n, 2)).round(int(rng.integers(1, 6)))
    low, high = np.array(list(RANGES.values())).T
    X = np.column_stack([low + shares * (high - low), rng.integers(0, 3, n)])
    for j in gaps:
        X[rng.random(n) < 0.1, j] = np.nan
    weight = rng.uniform(0.01, 50.0, n) if seed % 2 else None
    return Data(X, weight, columns=COLUMNS)


def about(step: Any, rows: Data, seed: int) -> list[State]:
    """States that the step may be asked about: the first ones of a run."""
    rng, d = np.random.default_rng(seed), rows.X.shape[1]
    if isinstance(step, Means | Missing):
        return [State()]
    whole = np.nan_to_num(rows.X)
    if isinstance(step, Squares):
        return [State.at(whole.mean(axis=0)[None])]
    start = State.at(whole[rng.integers(0, len(whole), 3)] + 0.01 * rng.normal(size=(3, d)))
    if not isinstance(step, algorithms.Lloyd) and not getattr(step, "needs_centers", True):
        start = State()
    states = [start]
    for _ in range(4 if hasattr(step, "server_step") else 0):
        answer = step.client_step(states[-1], rows, np.random.default_rng(1))
        states.append(step.server_step(states[-1], [answer], np.random.default_rng(1)))
    return states


GAPS = {"filled": (0, 1), "text": (2,), "turned": (0, 1, 2), "ignored": (0, 1), "unit": (0,)}


@pytest.mark.parametrize("grouped", [False, True], ids=["rows", "groups"])
@pytest.mark.parametrize("how", PREPROCESSORS)
@pytest.mark.parametrize("name", STEPS)
def test_no_answer_about_rows_within_their_ranges_is_out_of_bounds(name, how, grouped) -> None:
    step, preprocessor = STEPS[name], PREPROCESSORS[how]
    assert isinstance(step, Bounded)
    if how == "ignored" and not allowed_of(step).gaps:
        pytest.skip("takes no missing values")
    for seed in range(2):
        raw = within_ranges(seed, GAPS.get(how, ()))
        client = Client("a", raw, (), Groups(3) if grouped else None)
        rows, box = preprocessor.apply(client.data), preprocessor.enclosing(RANGES)
        for state in about(step, rows, seed):
            answer = step.client_step(state, rows, np.random.default_rng(seed))
            bounds = step.line_bounds(state, box)
            assert bounds.beyond(answer) is None, seed
            total = len(raw) if raw.sample_weight is None else raw.sample_weight.sum()
            assert not bounds.disjoint or answer.weights.sum() <= total * (1 + 1e-9)


def test_bounds_are_as_narrow_as_the_ranges() -> None:
    """Each end is reached by a row there; elsewhere what is out is moved within, or turned."""
    for name in ("scaled", "text", "ignored"):
        preprocessor = PREPROCESSORS[name]
        box = preprocessor.enclosing(RANGES)
        for bounds, ends in ((box.low, (0.0, -1.0)), (box.high, (120.0, 400.0))):
            rows = Data(np.array([[*ends, 0.0]]), columns=COLUMNS)
            reached = preprocessor.apply(rows).X[0, : len(preprocessor.numeric)]
            assert np.allclose(reached, bounds[: len(reached)])


def test_rows_of_no_known_range_have_no_bound() -> None:
    box = PREPROCESSORS["turned"].enclosing({"age": (0.0, 120.0)})
    assert np.isinf([box.low, box.high]).all()
    assert np.isinf(Box.unbounded(2).distances(np.zeros((1, 2)))).all()


# What a coordinator believes


def responders(rows: Mapping[str, Any]) -> dict[str, Responder]:
    """Sites that answer about any of their two columns."""
    sites = {}
    for name, X in rows.items():
        client = Client(name, Data(np.asarray(X, np.float64), columns=COLUMNS[:2]))
        choose = lambda c, raw=False, client=client: client  # noqa: E731
        sites[name] = Responder(client, columns=("age", "dose"), choose=choose, **KNOWN)
    return sites


def people(n: int = 60) -> Any:
    """Rows in two clusters."""
    return np.array([[30.0, 90.0], [80.0, 20.0]])[np.arange(n) % 2] + RNG.normal(size=(n, 2))


def crowd(names: str) -> dict[str, Any]:
    """Rows of sites whose names are letters."""
    return {name: people() for name in names}


def over(rows: Mapping[str, Any], bend: Bend | None = None, **how: Any) -> RemoteEngine:
    """An engine over sites, of which b bends its replies."""
    return RemoteEngine(Postman(responders(rows), "b", bend), rows, **how)


def raw(rows: Mapping[str, Any], bend: Bend | None = None, **how: Any) -> RemoteEngine:
    """The same, whose rows are to be prepared."""
    engine = over(rows, bend, **how)
    engine.choose(None, raw=True)
    return engine


def without_b(job: Any, rows: Mapping[str, Any], **how: Any) -> JobReport:
    """What the sites but b find."""
    return execute(job, raw({name: X for name, X in rows.items() if name != "b"}, **how))


def centers_of(report: JobReport) -> Any:
    return report.outcome.value.state.centers


def bent(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Bend:
    """A change of the header and the arrays of a reply."""

    def bend(reply: bytes, question: bytes) -> bytes:
        header, arrays = wire.unpack(reply)
        change(header, arrays)
        return wire.pack(header, arrays)

    return bend


def scaled(factor: float) -> Bend:
    """All sums times a factor, but the number of rows."""

    def change(_header: object, arrays: dict[str, Any]) -> None:
        for name, array in arrays.items():
            if name.endswith(".sums") and not (array == 60).all():
                arrays[name] = array * factor

    return bent(change)


@pytest.mark.parametrize("factor", [100.0, -1.0])
@pytest.mark.parametrize("scale", ["standard", "none"])
def test_sums_that_no_rows_within_the_ranges_have_are_refused(factor, scale) -> None:
    """From the preparation on: nothing of them is in the result."""
    rows, believed = crowd("abcd"), ReplyBounds(ranges=RANGES)
    job = fit_of(2, prepare=PreprocessingSpec(scale=scale))
    engine = raw(rows, scaled(factor), quorum=3, bounds=believed)
    report = execute(job, engine)
    assert {refusal.site for refusal in engine.refusals} == {"b"}
    assert "the bounds of the columns are stated" in engine.refusals[0].reason
    expected = without_b(job, rows, bounds=believed)
    assert np.allclose(centers_of(report), centers_of(expected))


def test_lines_that_share_no_row_weigh_no_more_than_all_rows() -> None:
    """Each line by itself would be believed."""

    def heavy(_header: object, arrays: dict[str, Any]) -> None:
        arrays[f"{len(arrays) // 2 - 1}.weights"] = np.full(2, 60.0)

    rows = crowd("abc")
    post = Postman(responders(rows), "b", bent(heavy))
    post.since = 1
    engine = RemoteEngine(post, rows, quorum=2)
    engine.introduce()
    engine.ask([Task(algorithms.Lloyd(), State.at(people(2)))])
    [refusal] = engine.refusals
    assert "its lines weigh 120 together, but all rows of the site 60" in refusal.reason


@pytest.mark.parametrize(
    ("believed", "reason"),
    [
        (ReplyBounds(rows={"b": 50}, remedy="say {rows}"), "at most 50 are stated; say b=60"),
        (ReplyBounds(first={"b": 49}), "it told of 49 at first"),
        (ReplyBounds(first={"b": 50}), None),
        (ReplyBounds(rows={"b": 60}, first={"b": 10}), None),
        (ReplyBounds(rows={"a": 50}), "at most 50 are stated"),
    ],
)
def test_a_site_has_no_more_rows_than_are_believed(believed, reason) -> None:
    engine = over(crowd("abc"), quorum=2, bounds=believed)
    engine.introduce()
    assert [reason in refusal.reason for refusal in engine.refusals] == [True] * bool(reason)


def weighing(most: float) -> Bend:
    """All that the site says, as if it had so many rows."""
    return bent(lambda _, arrays: arrays.update((n, a / 60 * most) for n, a in arrays.items()))


@pytest.mark.parametrize("stated", [{}, {"b": 80.0}])
def test_a_site_of_a_thousand_million_rows_moves_nothing(stated) -> None:
    """Where nothing is stated, one line asks for it; where it is, the run goes on without it."""
    rows, job = crowd("abcd"), fit_of(2, prepare=PreprocessingSpec())
    believed = ReplyBounds(rows=stated, remedy="state --rows {rows}")
    engine = raw(rows, weighing(1e9), quorum=3, bounds=believed)
    if stated:
        assert_array_equal(centers_of(execute(job, engine)), centers_of(without_b(job, rows)))
        return
    line = (
        "site 'b' tells of 1,000,000,000 rows, the others together of 180, and with a quorum "
        "it is not believed to outweigh them; state --rows a=60,b=1000000000,c=60,d=60"
    )
    with pytest.raises(SiteError, match=f"^{line}$"):
        execute(job, engine)


@pytest.mark.parametrize(
    ("told", "spare", "believed", "named"),
    [
        ({"a": 100, "b": 100, "c": 200}, 1, {}, None),
        ({"a": 100, "b": 100, "c": 201}, 1, {}, "c"),
        ({"a": 100, "b": 100, "c": 201}, 0, {}, None),  # all must answer: nobody may lie
        ({"a": 100, "b": 100, "c": 201}, 1, {"rows": {"c": 201}}, None),
        ({"a": 100, "b": 100, "c": 201}, 1, {"first": {"d": 1}}, None),  # d is away
        ({"a": 100, "b": 1e9, "c": 1e9, "d": 100}, 2, {}, "b"),
        ({"a": 100, "b": 1e9, "c": 1e9, "d": 100}, 2, {"rows": {"b": 1e9}}, None),
        ({"a": 1, "b": 9}, 1, {}, "b"),
        ({"a": 1, "b": 9}, 1, {"capped": True}, None),  # as robust fits are
        ({"a": 0, "b": 0}, 1, {}, None),
    ],
)
def test_no_site_outweighs_the_others_unless_that_is_stated(told, spare, believed, named) -> None:
    refused = pytest.raises(SiteError, match=f"^site '{named}' tells of")
    with refused if named else nullcontext():
        ReplyBounds(**believed).check_together(told, spare)


def test_a_site_that_comes_later_does_not_outweigh_those_that_were_there() -> None:
    rows = crowd("abc")
    post = Postman(responders(rows), "b", lambda reply, question: b"")
    engine = RemoteEngine(post, rows, quorum=2)
    task = Task(algorithms.Lloyd(), State.at(people(2)))
    engine.introduce()
    engine.ask([task])
    post.bend = weighing(1e9)
    with pytest.raises(SiteError, match="site 'b' tells of 1,000,000,000 rows"):
        engine.ask([task])


@pytest.mark.parametrize("low", [None, -5.0, 0.0])
def test_negative_values_are_counted_before_a_logarithm_and_refuse_the_fit(low) -> None:
    """Over a network no site fails for one: the counts that leave tell of them, or nothing does."""
    rows = crowd("abc")
    rows["b"][:7, 0] = -1.0
    bounds = {} if low is None else {"age": (low, 120.0)}
    job = fit_of(2, prepare=PreprocessingSpec(log=["age"], bounds=bounds))
    line = r"^column 'age' has 7 negative values at b, of which there"
    with nullcontext() if low == 0.0 else pytest.raises(InputError, match=line):
        assert centers_of(execute(job, raw(rows))).shape == (2, 2)


def _calls_ages_text(header: dict[str, Any], _arrays: object) -> None:
    if "described" in header:
        header["described"] = [["age", "text", ["old"]], ["dose", "number", []]]


calling_ages_text = bent(_calls_ages_text)
"""What a site tells that would take the column of ages from all others."""


@pytest.mark.parametrize("enough", [None, 3, 4])
def test_a_site_that_calls_numbers_text_is_refused_or_left_out_over_a_network(enough) -> None:
    rows, job = crowd("abcd"), fit_of(2, prepare=PreprocessingSpec())
    engine = raw(rows, calling_ages_text, quorum=enough)
    if enough != 3:
        line = "column 'age' holds numbers at a, c and d, text at b: correct it at b, or name "
        with pytest.raises(InputError, match=f"^{line}"):
            execute(job, engine, enough=enough)
        return
    report, expected = execute(job, engine, enough=enough), without_b(job, rows)
    assert report.columns == expected.columns == ("age", "dose")
    assert_array_equal(centers_of(report), centers_of(expected))
    assert all(done.missing == ("b",) for done in report.outcome.communication_rounds)
    assert report.fit_report.warnings[0].startswith("left out of the run: b; column 'age' holds")


@pytest.mark.parametrize(
    ("terms", "done"),
    [({}, False), ({"quorum": 3}, True), ({"quorum": 3, "secure": True}, False)],
)
@pytest.mark.parametrize("robust", [0, 1])
def test_a_run_begins_without_an_odd_site_where_it_may_be_left_out(tmp_path, terms, done, robust):
    """By its quorum, or as a robust fit may believe one less; never with secure sums."""
    rows = crowd("abcd")
    job = asdict(fit_of(2, prepare=PreprocessingSpec(), robust=robust))
    content = {"job": "fit", "parameters": job, "columns": None, "sites": list(rows), **terms}

    def run(out: str) -> dict[str, Any]:
        engine = over(rows, calling_ages_text, quorum=terms.get("quorum"))
        return run_job(engine, content | {"out": str(tmp_path / out)}, tmp_path / "run")

    if not (done or (robust and not terms)):
        with pytest.raises(InputError, match="correct it at b"):
            run("out")
        return
    assert run("out")["doubts"][0].startswith("left out of the run: b; column 'age' holds")
    run("again")
    first, then = (json.loads((tmp_path / o / "model.json").read_text()) for o in ("out", "again"))
    assert [site["name"] for site in first["sites"]] == ["a", "c", "d"]
    assert first["centers"] == then["centers"]  # a run that goes on leaves out the same site


def test_what_sites_told_first_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "first-rows.json"
    assert first_rows(path) == {}
    keep_first_rows(path, {"a": 60.0})
    keep_first_rows(path, {"a": 90.0, "b": 50.0})
    assert first_rows(path) == {"a": 60.0, "b": 50.0}
    path.write_text("[3]")
    with pytest.raises(InputError, match=r"is damaged: .*; delete it to ask sites anew"):
        first_rows(path)


# States that are not finite


@pytest.mark.parametrize("factor", [1e150, 1e200, 1e300])
@pytest.mark.parametrize("prepare", [None, "standard"])
@pytest.mark.parametrize("algorithm", ["auto", "fkm"])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_the_site_with_values_that_overflow_is_named(algorithm, prepare, factor) -> None:
    """And not the honest ones, whose squares about a mean that it moved would be infinite."""
    rows = crowd("abcd")
    rows["c"] = rows["c"] * factor
    estimator = FederatedKMeans(2, algorithm=algorithm, prepare=prepare, random_state=0)
    with pytest.raises(SiteError, match=r"site 'c', round 1, .* not finite, or beyond"):
        estimator.fit(rows)


@dataclass(frozen=True)
class Exponential(algorithms.Lloyd):
    """A server step of one's own that overflows where sums are finite."""

    def server_step(self, state, answers, rng):
        with np.errstate(over="ignore"):
            return State(np.exp(sum(answer.sums[:, :-1] for answer in answers)))


def sent(**sums: float) -> dict[str, Summary]:
    return {name: Summary(np.array([[x, 0.0]]), np.ones(1)) for name, x in sums.items()}


def test_a_run_goes_on_without_the_answer_that_makes_a_state_infinite(caplog) -> None:
    answers, start = sent(a=1.0, b=1e9, c=2.0), State.at([[0.0]])
    state, done = server_update(Exponential(), start, Answers(answers, (), enough=2), 0)
    assert (state.centers[0, 0], done.missing) == (np.exp(3.0), ("b",))
    assert "site 'b': with its answer, Exponential.server_step" in caplog.text
    with pytest.raises(SiteError, match=r"site 'b': .* a quorum lets the run go on without it"):
        server_update(Exponential(), start, Answers(answers), 0)
    with pytest.raises(ValueError, match="not finite: a mean over no rows"):  # no single one
        server_update(Exponential(), start, Answers(sent(a=1e9, b=1e9), (), enough=1), 0)


def test_a_resumed_run_knows_how_many_answers_are_enough(tmp_path: Path) -> None:
    task, remote = Task(algorithms.Lloyd(), State.at(people(2))), over(crowd("abc"), quorum=2)
    for _ in range(2):
        [asked] = RecordedEngine(remote, tmp_path).ask([task])
        assert (asked.enough, asked.n_spare) == (2, 1)


# Influence


def engine_of(rows: Mapping[str, Any]) -> LocalEngine:
    return LocalEngine([Client(name, Data(X), ()) for name, X in rows.items()])


def in_clusters(seed: int, sites: int = 6, n: int = 90) -> dict[str, Any]:
    """Rows of all sites in four clusters, other rows with each seed."""
    rng = np.random.default_rng(seed)
    centers = 4.0 * rng.normal(size=(4, 3))
    parts = {f"s{i}": centers[rng.integers(0, 4, n)] for i in range(sites)}
    return {name: each + rng.normal(size=each.shape) for name, each in parts.items()}


def report_of(rows: Mapping[str, Any], k: int = 4, lies: Any = (), **how: Any) -> JobReport:
    """What a fit finds where some sites lie."""
    engine = LyingEngine(engine_of(rows), {name: LIES[lie] for name, lie in dict(lies).items()})
    columns = [f"x{j}" for j in range(rows["s0"].shape[1])]
    return execute(fit_of(k, **how), engine, columns=columns)


def test_influence_is_that_of_a_server_step_without_the_site() -> None:
    rows = in_clusters(1)
    report = report_of(rows, prepare=PreprocessingSpec())
    assert {each.site for each in report.influence} == set(rows)
    state, prepared = report.outcome.value.state, report.preprocessor
    assert prepared is not None
    Z = {name: prepared.apply(Data(X)).X for name, X in rows.items()}
    labels = {name: nearest(z, state.centers)[0] for name, z in Z.items()}
    everything, near = (np.concatenate(list(part.values())) for part in (Z, labels))
    middle = np.array([everything[near == c].mean(axis=0) for c in range(4)])
    for each in report.influence:
        others = [name for name in rows if name != each.site]
        z, j = (np.concatenate([part[name] for name in others]) for part in (Z, labels))
        own = np.array([z[j == c].mean(axis=0) for c in range(4)])
        least, more = (float(((z - c[j]) ** 2).sum()) for c in (own, middle))
        assert np.isclose(each.inertia_change or 0, more / least - 1, rtol=1e-6, atol=1e-9)
        assert each.alone == 0
        assert 0 < each.mean_shift <= each.largest_shift < 0.2


@pytest.mark.parametrize("lie", ["scaled", "flipped", "corner", "many rows"])
@pytest.mark.parametrize("seed", range(3))
def test_the_liar_has_the_most_influence(lie, seed) -> None:
    report = report_of(in_clusters(seed), lies={"s3": lie}, prepare=PreprocessingSpec())
    assert report.influence[0].site == "s3"
    said = influence_line(report.influence)
    assert all("s3" in line and "column 'x" in line for line in said)
    assert said or lie == "flipped"


def mixed(seed: int, shares: float = 1.0) -> dict[str, Any]:
    """Rows of seven sites that hold five clusters in different shares."""
    rng = np.random.default_rng([seed, 33])
    centers = 3.0 * rng.normal(size=(5, 4))
    held = rng.dirichlet(np.full(5, shares), size=7)
    parts = {f"s{i}": centers[rng.choice(5, 200, p=p)] for i, p in enumerate(held)}
    return {name: each + rng.normal(size=each.shape) for name, each in parts.items()}


@pytest.mark.parametrize("prepare", [None, PreprocessingSpec()], ids=["as they are", "scaled"])
@pytest.mark.parametrize("sums_only", [False, True])
@pytest.mark.parametrize("factor", [-1.0, 2.2])
def test_the_site_with_an_odd_column_comes_first(factor, sums_only, prepare) -> None:
    for seed in range(3):
        rows = mixed(seed)
        rows["s3"] = rows["s3"] * [1, 1, factor, 1]
        influence = report_of(rows, 5, sums_only=sums_only, prepare=prepare).influence
        first = influence[0]
        assert (first.site, first.column) == ("s3", "x2")
        assert first.factor is not None
        assert np.isclose(first.factor, 1 / factor, rtol=0.25)
        [line] = influence_line(influence)
        assert line.startswith("column 'x2' at s3: ")


@pytest.mark.parametrize("shares", [1.0, 0.3])
def test_other_shares_of_the_clusters_are_not_odd(shares) -> None:
    for seed in range(10, 15):
        influence = report_of(mixed(seed, shares), 5).influence
        assert not [each for each in influence if each.is_odd]
        assert influence_line(influence) == []


def test_a_site_with_clusters_of_its_own_is_named_and_one_of_many_such_is_not() -> None:
    rows = mixed(1)
    rows["s5"] = rows["s5"] + [40, -30, 20, 0]
    [line] = influence_line(report_of(rows, 7).influence)
    assert line.startswith("s5 has 100 % of its rows in clusters of its own, ")
    each = {name: X + 40 * i for i, (name, X) in enumerate(rows.items())}
    assert not [each for each in report_of(each, 7).influence if each.is_odd]


def test_a_robust_fit_says_whom_it_left_out_of_the_preparation() -> None:
    rows = {name: X + 20 for name, X in mixed(2, 50.0).items()}
    rows["s3"] = rows["s3"] * [1, 1, 2.2, 1]
    report = report_of(rows, 5, prepare=PreprocessingSpec(), robust=1)
    assert "s3" in report.outcome.value.reason
    assert Trimmed(before={"s3": "the start"}) != Trimmed()
    assert str(Trimmed(before={"s3": "the start"})) == "left out of the start: s3"
    told = Trimmed(2, Counter(s3=2), 0, {"s3": "the start", "s4": "the preparation of a column"})
    assert str(told) == (
        "left out of most clusters: s3; left out of the preparation of a column: s4"
    )


@pytest.mark.parametrize("few", [2, 90])
def test_centres_of_a_site_s_own_are_no_lines_of_clusters(few: int) -> None:
    """k-FED numbers them as each site finds them; of fewer rows than clusters there are fewer."""
    rows = in_clusters(1)
    rows["s3"] = rows["s3"][:few]
    influence = report_of(rows, algorithm="kfed").influence
    assert {each.site for each in influence} == set(rows)
    assert all((each.alone, each.own) == (0, 0.0) for each in influence)
    assert max(each.mean_shift for each in influence) < 0.5


def test_influence_stands_in_the_files_and_on_the_page(tmp_path: Path) -> None:
    rows = in_clusters(2)
    assert len(FederatedKMeans(4, random_state=0).fit(rows).influence_) == 6
    report = report_of(rows)
    write_job(tmp_path, report, "trial")
    told = json.loads((tmp_path / "history.json").read_text())["influence"]
    assert [each["site"] for each in told] == [each.site for each in report.influence]
    assert "Influence of the sites" in (tmp_path / "report.html").read_text()


def test_two_sites_have_none() -> None:
    assert report_of(in_clusters(3, sites=2), 2).influence == ()


# Robust fits


def fitted(rows: Mapping[str, Any], robust: int, **lies: str) -> JobReport:
    return report_of(rows, lies=lies, prepare=PreprocessingSpec(), robust=robust)


def inertia(report: Any, rows: Mapping[str, Any]) -> float:
    """Of the honest sites' rows, by the centres in the units of the columns."""
    centers = report.preprocessor.invert(report.outcome.value.state.centers)
    return float(sum(nearest(X, centers)[1].sum() for X in rows.values()))


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("seed", range(4, 7))
def test_a_robust_fit_is_as_good_as_one_without_the_liar(lie, seed) -> None:
    rows = in_clusters(seed, sites=7)
    honest = {name: X for name, X in rows.items() if name != "s3"}
    report = fitted(rows, 1, s3=lie)
    assert inertia(report, honest) < 1.02 * inertia(fitted(honest, 0), honest)
    assert "; robust against 1 lying site" in report.outcome.value.reason
    if lie != "overflow":  # its answers are not used at all
        assert report.outcome.value.reason.endswith(": left out of most clusters: s3")


def test_a_robust_fit_stands_two_liars_that_agree_and_no_more_than_it_is_told() -> None:
    rows = in_clusters(8, sites=9)
    honest = {name: X for name, X in rows.items() if name not in ("s3", "s4")}
    best = inertia(fitted(honest, 0), honest)
    assert inertia(fitted(rows, 2, s3="corner", s4="corner"), honest) < 1.02 * best
    assert inertia(fitted(rows, 0, s3="corner", s4="corner"), honest) > 1.1 * best


def test_what_is_alike_by_chance_is_not_left_out() -> None:
    """Of many draws, few honest sites are apart; one that is moved is."""
    rng, out = np.random.default_rng(5), 0
    for _ in range(300):
        n = rng.integers(5, 200, 9).astype(float)
        means = rng.normal(size=(9, 4)) / np.sqrt(n)[:, None]
        out += apart(means, n, 4.0, 1).sum()
        means[2] += 9 / np.sqrt(n[2])
        assert apart(means, n, 4.0, 1)[2]
    assert out < 15


@pytest.mark.parametrize("weights", [[1e9, 1, 1, 1, 1], [5, 4, 3, 2, 1], [1, 0, 0, 0, 0]])
@pytest.mark.parametrize("faults", [1, 2])
def test_no_few_sites_are_the_majority(weights, faults) -> None:
    capped = np.sort(majority(np.array(weights, float), faults))
    assert capped[-faults:].sum() <= max(capped[:-faults].sum(), faults * capped[-faults - 1])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"algorithm": "kfed"}, "algorithm='kfed' is for k-means, not for a robust fit (robust)"),
        ({"n_clusters": (2, 3)}, "a choice of n_clusters is for other fits, not for a robust"),
        ({"robust": 4}, "robust=4 needs at least 9 sites, of which most are honest; there are 7"),
    ],
)
def test_what_robust_fits_cannot_do_is_refused(options, reason) -> None:
    with pytest.raises(InputError, match=re.escape(reason)):
        job = fit_of(**{"n_clusters": 4, "robust": 1, **options})
        execute(job, engine_of(in_clusters(0, sites=7)), columns=("x0", "x1", "x2"))


def test_robust_fits_need_more_than_secure_sums() -> None:
    sites = [SiteInfo(name, secure=True) for name in "abc"]
    with pytest.raises(InputError, match="robust=1 needs more than sums over all sites"):
        procedure_of(fit_of(4, robust=1)).check(sites)


@pytest.mark.parametrize(
    ("weight", "resampled", "believed"),
    [(100, None, True), (101, None, False), (101, 3, True), (2000, 3, True), (2001, 3, False)],
)
def test_rows_drawn_again_may_weigh_twenty_times_as_much(weight, resampled, believed):
    """A bootstrap sample of a site's 100 rows may be larger; no other answer may."""
    site = SiteInfo("a", n_rows=100.0, weight=100.0, n_columns=1)
    task = Task(Lloyd(), State.at([[0.0]]), resampled=resampled)
    answer = Summary(np.zeros((1, 2)), np.array([float(weight)]))
    refused = pytest.raises(WireError, match=f"a line weighs {weight}, but all rows")
    with nullcontext() if believed else refused:
        check_answer(task, answer, site, ReplyBounds(), None)


def test_steps_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InputError, match="does not know how to compare sites by VarianceTree"):
        Robust(1, 4, {}, 0).combine(
            Task(algorithms.VarianceTree(8), State()), Answers(sent(a=1.0, b=1.0, c=1.0))
        )


@pytest.mark.parametrize("weight", [0.0, 9.0])
def test_means_stay_as_they_are_where_no_cluster_has_enough_sites(weight: float) -> None:
    """Or where limits held back all of them."""
    given = {
        name: Summary(each.sums * weight, each.weights * weight)
        for name, each in sent(a=1.0, b=100.0, c=900.0).items()
    }
    task = Task(algorithms.SiteSummaries(4), State())
    combined, trimmed = Robust(1, 3, {}, 0).combine(task, Answers(given))
    for name, each in given.items():
        assert_array_equal(combined.by_site[name].sums, each.sums)
        assert_array_equal(combined.by_site[name].weights, each.weights)
    assert trimmed is not None
    assert not trimmed.before


def test_a_cluster_of_too_few_sites_keeps_its_sums_and_is_told_of() -> None:
    rows = in_clusters(3, sites=7)
    far = RNG.normal(size=(40, 3)) + 40.0
    rows = {name: np.vstack([X, far]) if name in ("s0", "s1") else X for name, X in rows.items()}
    report = fitted(rows, 1)
    assert "clusters at too few sites to compare" in report.outcome.value.reason
    assert inertia(report, rows) < 1.2 * inertia(fitted(rows, 0), rows)


# Forgetting a site


@pytest.mark.parametrize("algorithm", ["auto", "kfed", "lloyd"])
@pytest.mark.parametrize("scale", ["standard", "none"])
def test_a_site_is_forgotten_exactly_and_few_are_asked_again(algorithm, scale, tmp_path) -> None:
    rows, before = crowd("abcd"), tmp_path / "before"
    others = {name: rows[name] for name in "abd"}
    job = fit_of(2, algorithm=algorithm, prepare=PreprocessingSpec(scale=scale), seed=3)
    execute(job, RecordedEngine(raw(rows), before))
    alone = execute(job, raw(others)).outcome.value.state
    for is_pruned in (False, True):
        if is_pruned:
            shutil.rmtree(before)
        forgetting = RecordedEngine(raw(others), tmp_path / f"after-{is_pruned}", (before, "c"))
        without = execute(job, forgetting).outcome.value.state
        assert_array_equal(without.centers, alone.centers)
        assert_array_equal(without.weights, alone.weights)
        reused = 1 if (algorithm, scale) != ("kfed", "none") else 2
        assert forgetting.reused == 0 if is_pruned else forgetting.reused >= reused


def test_a_site_that_was_missing_when_answers_were_recorded_is_asked_again(tmp_path: Path) -> None:
    class WithoutB(WrappedEngine):
        def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
            return [
                Answers({n: each for n, each in all_of.by_site.items() if n != "b"}, ("b",))
                for all_of in self._engine.ask(tasks, sites)
            ]

    clients = [Client(name, Data(people())) for name in "abc"]
    task = Task(Means(), State())
    RecordedEngine(WithoutB(LocalEngine(clients)), tmp_path / "before").ask([task])
    again = RecordedEngine(LocalEngine(clients[:2]), tmp_path / "after", (tmp_path / "before", "c"))
    [answers] = again.ask([task])
    assert (list(answers.by_site), answers.missing, again.reused) == (["a", "b"], (), 0)


def test_a_site_that_is_forgotten_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="site 'c' is to be forgotten, and must not be asked"):
        RecordedEngine(over(crowd("abc")), tmp_path / "new", (tmp_path, "c"))
    assert not (tmp_path / "new").exists()


def test_a_run_to_forget_a_site_is_that_run_without_it(tmp_path: Path) -> None:
    trial = create(tmp_path / "f", ("a", "b", "c"), "127.0.0.1:8443")
    before, new = trial.file("runs", "old"), trial.file("runs", "new")
    before.mkdir(parents=True)
    given = {"sites": ["a", "b", "c"], "quorum": 3, "out": "x", "job": "fit", "columns": None}
    (before / "job.json").write_text(json.dumps(given))
    content = content_without(trial, "old", "b", new)
    assert (content["sites"], content["quorum"]) == (["a", "c"], 2)
    assert content["forgets"] == {"run": "../old", "site": "b"}
    there = located({**content, "parameters": {}}, new)
    assert Path(there["forgets"]["run"]).resolve() == before
    assert there["out"] == str(new / "result")
    for name, site, reason in (("old", "z", "'z' cannot be forgotten"), ("no", "a", "no run 'no'")):
        with pytest.raises(InputError, match=reason):
            content_without(trial, name, site, new)


PLAUSIBLE: dict[str, tuple[list[float], set[str]]] = {
    "of two, the smaller is believed": ([3.0, 1e99], {"b"}),
    "of two, in the other order": ([1e99, 3.0], {"a"}),
    "two of four": ([3.0, 1e99, 4.0, 1e98], {"b", "d"}),
    "small numbers that differ much": ([1e-30, 1e-12, 2e-30], set()),
    "below 1, as much more than 1": ([1e-30, 2e17, 2e-30], {"b"}),
    "not quite as much more than 1": ([1e-30, 0.9e17, 2e-30], set()),
    "as much more than others": ([1e3, 3e20, 2e3], {"b"}),
    "not quite as much more than others": ([1e3, 1.9e20, 2e3], set()),
}


@pytest.mark.parametrize("case", PLAUSIBLE)
def test_a_site_is_held_against_the_lower_median_and_against_one(case: str) -> None:
    said, refused = PLAUSIBLE[case]
    answers = {
        name: [Summary(np.array([[2 * x, 1.0], [0.0, 0.0]]), np.array([2.0, 0.0]))]
        for name, x in zip("abcd", said, strict=False)
    }
    assert set(implausible(answers)) == refused


def test_a_median_of_sites_at_a_tie_lies_halfway() -> None:
    values = np.array([[8.0, 1.0], [2.0, 5.0]])
    assert median(values, np.ones(2)).tolist() == [5.0, 3.0]
    assert median(values, np.array([3.0, 1.0])).tolist() == [8.0, 1.0]


def test_a_spread_of_0_becomes_the_smallest_that_is_not() -> None:
    """Where centres lie in one place: shifts are told in spreads."""
    task: Task = Task(KFed(2), State())
    state = State.at(np.array([[0.0], [0.0], [0.5]]))
    np.testing.assert_allclose(_spread(task, {}, state), [0.25, 0.25, 0.25])
    np.testing.assert_allclose(_spread(task, {}, State.at(np.zeros((2, 1)))), [1.0, 1.0])


def test_a_site_whose_rows_would_lie_at_the_centres_is_compared() -> None:
    """Another factor for a column may leave no misfit at all, by which nothing can be divided."""
    order, X = np.random.default_rng(9).permutation(150), load_iris().data
    rows = {f"s{i}": X[order[i::5]] for i in range(5)}
    model = FederatedKMeans(10, random_state=9, min_cluster_size=5).fit(rows)
    misfits = np.array([each.misfit for each in model.influence_], dtype=float)
    assert len(misfits) == 5
    assert np.isfinite(misfits).all()
