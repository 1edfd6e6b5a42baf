"""All steps of a job are checked with the sites before the first question about rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from secure_sites import Wire, identities
from test_permits import Federation, admitted

from fedcluster import Client, Data, FederatedGaussianMixture, FederatedKMeans, LocalEngine
from fedcluster.algorithms import FKM, Lloyd
from fedcluster.core import Column, State, Summary, Task
from fedcluster.core.ranges import CENTERS, Allowed, OneOf
from fedcluster.engines.wire import WireError, digest, pack, unpack
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Evaluate, Profile, SelectK, execute, fit_of, procedure_of
from fedcluster.model import Model
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.selection import Rule
from fedcluster_app.secure.cohort import Terms
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.secure.site import SecureSite
from fedcluster_app.wire.policy import Policy, PolicyLimits
from fedcluster_app.wire.recorder import RecordedEngine
from fedcluster_app.wire.remote import Question, RemoteEngine
from fedcluster_app.wire.responder import Responder

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(5)
ROWS = {name: np.concatenate([RNG.normal(c, 0.5, (30, 2)) for c in (0, 6)]) for name in "abcd"}


@dataclass(frozen=True)
class Absolute:
    """The sum of absolute distances to the nearest centre."""

    client_additive = server_additive = True
    maximise = False
    allowed = Allowed({"power": OneOf((1.0,))}, CENTERS)
    power: float = 1.0

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return 1, 1

    def client_step(self, state: State, data: Data, rng: Any) -> Summary:
        apart = np.abs(data.X[:, None] - state.centers).sum(axis=2).min(axis=1)
        return Summary(np.array([[apart.sum()]]), np.array([float(len(data))]))

    def score(self, state: State, total: Summary) -> float:
        return float(total.sums[0, 0])


@dataclass(frozen=True)
class Mine(Lloyd):
    """Lloyd's algorithm with an objective of its own."""

    def objective(self) -> Any:  # type: ignore[override]
        return Absolute()


OWN = {"Mine": Mine, "Absolute": Absolute}
EVERY = {**KNOWN["steps"], **OWN}
MINE = fit_of(2, algorithm=Mine(), seed=1)


def site(
    name: str,
    lacks: Sequence[str] = (),
    secure: SecureSite | None = None,
    told: Sequence[Column] = (Column("x"), Column("y")),
    **more: Any,
) -> Responder:
    """One site that knows all steps but some."""
    steps = {step: kind for step, kind in EVERY.items() if step not in lacks}
    client = Client(name, Data(ROWS[name], columns=tuple(told)))
    return Responder(
        client,
        columns=("x", "y"),
        choose=lambda *_columns, **_raw: client,
        steps=steps,
        preprocessors=partial(row_transform, steps=steps),
        secure=secure,
        **more,
    )


def federation(lacks: Mapping[str, Sequence[str]] | None = None, names: str = "abc") -> Wire:
    return Wire({name: site(name, (lacks or {}).get(name, ())) for name in names})


def carried_out(job: Any, engine: Any, **more: Any) -> Any:
    return execute(job, engine, columns=["x", "y"], **more)


def engine_of(wire: Wire, *, raw: bool = False, **more: Any) -> RemoteEngine:
    engine = RemoteEngine(wire, wire.sites, **more)
    engine.choose(["x", "y"], raw=raw)
    return engine


def secure_engine(lacks: Mapping[str, Sequence[str]], **how: Any) -> tuple[Wire, SecureEngine]:
    keys = identities("abcd")
    peers = {name: key.public_key() for name, key in keys.items()}
    parts = {name: SecureSite(name, keys[name], peers, Terms(allow_dropouts=True)) for name in keys}
    wire = Wire({name: site(name, lacks.get(name, ()), part) for name, part in parts.items()})
    engine = SecureEngine(wire, wire.sites, **how)
    engine.choose(["x", "y"])
    return wire, engine


def answered(wire: Wire) -> list[str]:
    return [name for name, _, reply in wire.log if unpack(reply)[1]]


# Before the first question about rows


@cache
def own_model() -> Model:
    return Model.from_estimator(FederatedKMeans(2, random_state=0).fit(ROWS))


JOBS: dict[str, tuple[Any, str]] = {  # those of a model are made where they are needed
    "an algorithm": (MINE, "Mine"),
    "its objective": (MINE, "Absolute"),
    "of prepared rows": (replace(MINE, prepare=PreprocessingSpec(scale="standard")), "Absolute"),
    "of a choice of k": (replace(MINE, n_clusters=[2, 3]), "Absolute"),
    "of replicates": (replace(MINE, stability=3), "Absolute"),
    "of a sample of the sites": (replace(MINE, participation=0.5), "Absolute"),
    "a metric": (lambda: Evaluate(own_model(), metrics=[Absolute()]), "Absolute"),
    "a metric by its name": (
        lambda: Evaluate(own_model(), metrics=[f"{__name__}.Absolute"]),
        "Absolute",
    ),
    "scores": (lambda: Evaluate(own_model()), "SquaredSilhouette"),
    "scores with labels": (lambda: Evaluate(own_model(), labels=True), "SiteARI"),
    "profiles of a fit": (fit_of(2, profile=True), "ClusterColumns"),
    "profiles of scores": (lambda: Evaluate(own_model(), profile=True), "ClusterSilhouettes"),
    "profiles": (lambda: Profile(own_model()), "ClusterColumns"),
    "stability": (fit_of(2, stability=2), "Agreement"),
    "principal components": (fit_of(2, prepare=PreprocessingSpec(pca=1)), "Covariance"),
    "a mixture": (fit_of(2, model="mixture"), "GaussianMixture"),
    "a choice of k": (SelectK(k_max=3), "Moments"),
}


def made(job: Any) -> Any:
    return job() if callable(job) else job


@pytest.mark.parametrize(("job", "step"), JOBS.values(), ids=JOBS)
def test_a_job_ends_before_any_row_is_asked_about(job, step):
    job, wire = made(job), federation({"b": [step], "c": [step]})
    raw = getattr(job, "prepare", None) is not None
    with pytest.raises(SiteError) as raised:
        carried_out(job, engine_of(wire, raw=raw))
    assert str(raised.value) == (
        "round 1: 1 of 3 sites answered, where 3 are needed (b and c: refused the question: step "
        f"{step!r} is not among the steps that this site knows; a step of your own must be named "
        "in steps under [federation] in its site.toml)"
    )
    assert len(wire.log) == 3, "one message to each site"
    assert answered(wire) == ["a"], "how many rows it has, and nothing else"


def test_fields_that_a_site_does_not_know_or_allow_are_refused_at_the_start():
    @dataclass(frozen=True)
    class Newer(Absolute):
        trimmed: bool = False

    Newer.__name__ = "Absolute"
    for given, why in (
        (Newer(), "step 'Absolute' does not have these fields: ['power', 'trimmed']"),
        (Absolute(2.0), "by the policy of the site: Absolute: power must be 1.0"),
    ):
        wire = federation()
        with pytest.raises(SiteError, match=r"round 1: 0 of 3") as raised:
            carried_out(Evaluate(own_model(), metrics=[given]), engine_of(wire))
        assert why in str(raised.value)
        assert not answered(wire)


@pytest.mark.parametrize("steps", [None, ("SiteSize", "Lloyd", "SiteSummaries", "Mine", "Inertia")])
def test_a_step_that_the_policy_denies_is_refused_at_the_start_and_costs_no_run(steps):
    limits: dict[str, Any] = {"denied": ("Absolute",)} if steps is None else {"steps": steps}
    policy = Policy(PolicyLimits(**limits, max_runs_per_day=1))
    wire = Wire({"a": site("a"), "b": site("b", policy=policy)})
    why = r"b: refused the question: by the policy of the site: Absolute: the step is not among"
    for _ in range(2):
        with pytest.raises(SiteError, match=why):
            carried_out(MINE, engine_of(wire))
    assert answered(wire) == ["a", "a"]
    fit = carried_out(fit_of(2), engine_of(wire))
    assert len(fit.outcome.value.state.centers) == 2


def test_a_permit_covers_all_steps_of_a_run_or_none(tmp_path):
    trial = Federation(tmp_path / "trial")
    trial.site("north").accept(trial.permit(), trial.log("north"))
    about = {"steps": [{"step": "Lloyd", "fields": {}}, {"step": "SiteSize"}]}
    assert admitted(trial, about=about).id == "hips-1"
    about["steps"].append({"step": "Inertia"})
    with pytest.raises(WireError, match="permit 'hips-1' does not cover step 'Inertia'"):
        admitted(trial, about=about)
    with pytest.raises(WireError, match="does not cover labels"):
        admitted(trial, about={"steps": [{"step": "SiteARI"}]})


NO_LIST = "the steps that are planned are not a list of names with parameters"


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([{"step": ["Lloyd"]}], "step ['Lloyd'] is not among the steps"),
        ([{}], "step None is not among the steps"),
        ([{"step": "Lloyd", "fields": {"tol": [1]}}], "the fields of step 'Lloyd' are not names"),
        ([{"step": "Lloyd"}] * 5000, "by the policy of the site: at most 4,000 tasks"),
        *((steps, NO_LIST) for steps in (["Lloyd"], {"step": "Lloyd"}, "Lloyd", [None], 3)),
    ],
)
def test_steps_of_a_hostile_coordinator_are_refused(steps, why):
    question = Question({"run": "r", "exchange": 0, "about": {"steps": steps}}).message
    header, arrays = unpack(site("a").reply(question))
    assert header["refused"].startswith(why)
    assert why != NO_LIST or header["refused"] == why
    assert not arrays


# A quorum


def test_with_a_quorum_a_run_goes_on_without_the_site_that_lacks_a_step():
    """As if it did not answer: in no round, with the reason; the others give the same bits."""
    wire = federation({"c": ["Absolute"]})
    engine = engine_of(wire, quorum=2)
    report, alone = (
        carried_out(MINE, each).outcome for each in (engine, engine_of(federation(names="ab")))
    )
    assert report.value.state.inertia == alone.value.state.inertia
    assert (report.value.state.centers == alone.value.state.centers).all()
    assert "c" not in answered(wire)
    assert {refusal.site for refusal in engine.refusals} == {"c"}
    assert all("step 'Absolute' is not among" in refusal.reason for refusal in engine.refusals)
    assert all(each.missing == ("c",) for each in report.communication_rounds)


# Engines


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, r"round 1: 3 of 4 sites.* \(b: .*'Absolute' is not among"),
        ({"quorum": 3}, r"3 of 4 sites .* 4 are .*'Absolute' is not among"),
    ],
)
def test_secure_sums_begin_with_the_steps_and_with_all_sites_or_not_at_all(how, said):
    wire, engine = secure_engine({"b": ["Absolute"]}, **how)
    with pytest.raises(SiteError, match=said):
        carried_out(MINE, engine)
    assert not answered(wire)


def test_secure_sums_refuse_at_the_start_what_does_not_add_up():
    _, engine = secure_engine({})
    with pytest.raises(InputError, match=r"^FKM needs more than sums over all sites"):
        carried_out(fit_of(2, algorithm=FKM(2)), engine)


def test_a_resumed_run_tells_the_steps_again(tmp_path):
    def recorded(wire: Wire) -> Any:
        return carried_out(MINE, RecordedEngine(engine_of(wire), tmp_path / "exchanges")).outcome

    first, again = recorded(federation()), federation()
    max((tmp_path / "exchanges").glob("exchange-*")).unlink()
    with pytest.raises(SiteError, match=r"round 1: .*'Absolute' is not among"):
        recorded(federation({"b": ["Absolute"]}))
    assert recorded(again).value.state.inertia == first.value.state.inertia
    assert len(again.log) == 2 * 3, "an introduction, and the last round"


def of_wire() -> tuple[Wire, RemoteEngine]:
    wire = federation({"b": ["Absolute"]})
    return wire, engine_of(wire)


@pytest.mark.parametrize("made", [of_wire, lambda: secure_engine({"b": ["Absolute"]})])
def test_sites_that_were_introduced_before_are_told_the_steps_of_the_next_job(made):
    """Those of secure sums that have begun, too."""
    wire, engine = made()
    carried_out(fit_of(2, max_iter=1), engine)
    known = len(wire.log)
    with pytest.raises(SiteError, match="'Absolute' is not among"):
        carried_out(MINE, engine)
    assert len(wire.log) == known + len(wire.sites)
    if made is of_wire:  # what was refused is not forgotten
        with pytest.raises(SiteError, match="'Absolute' is not among"):
            engine.introduce()


def test_no_exchange_is_added_where_sites_know_all_steps():
    plain, own = federation(), federation()
    carried_out(fit_of(2, algorithm=Lloyd()), engine_of(plain))
    report = carried_out(MINE, engine_of(own))
    assert len(own.log) == len(plain.log)
    assert len(own.log) == 3 * (1 + len(report.outcome.communication_rounds))


@dataclass(frozen=True)
class Unscored(Lloyd):
    """An algorithm whose objective is no metric."""

    def objective(self) -> Any:  # type: ignore[override]
        return Lloyd()


ENGINES = {
    "local": lambda: LocalEngine([Client(name, Data(X)) for name, X in ROWS.items()]),
    "table": lambda: LocalEngine.from_table(
        Data(np.concatenate([*ROWS.values()])), np.arange(240) // 60
    ),
    "remote": lambda: engine_of(federation()),
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_an_objective_that_is_no_metric_is_refused_before_a_site_is_asked(engine):
    asked: list[Any] = []
    with pytest.raises(InputError, match=r"objective of Unscored .*Lloyd lacks maximise, score"):
        carried_out(fit_of(2, algorithm=Unscored()), engine(), watch=asked.append)
    assert not asked


class Bare:
    """A metric that is no dataclass."""

    client_additive = server_additive = True
    maximise = False
    answer_shape, client_step, score = Absolute.answer_shape, Absolute.client_step, Absolute.score


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (Absolute((1.0, 2.0)), "power must be a number"),  # type: ignore[arg-type]
        (Bare(), "a step must be a frozen dataclass"),
    ],
)
def test_a_step_that_cannot_travel_is_refused_before_a_site_is_asked(metric, why):
    wire = federation()
    with pytest.raises(WireError, match=f"cannot be sent: {why}"):
        carried_out(Evaluate(own_model(), metrics=[metric]), engine_of(wire))
    assert not wire.log


# Versions


def test_a_site_of_an_older_version_answers_as_before():
    """It reads nothing of what a message says besides."""

    @dataclass
    class Older:
        responder: Any

        def reply(self, message: bytes) -> bytes:
            header, arrays = unpack(message)
            header["about"].pop("steps")
            reply, numbers = unpack(self.responder.reply(pack(header, arrays)))
            return pack({**reply, "question": digest(message)}, numbers)

    lacking: dict[str, Any] = {name: Older(site(name, ["Absolute"])) for name in "ab"}
    older = Wire(lacking)
    with pytest.raises(SiteError, match="'Absolute' is not among"):
        carried_out(MINE, engine_of(older))
    assert len(older.log) > 2 * 3, "it is found out at the end"
    knowing: dict[str, Any] = {name: Older(site(name)) for name in "ab"}
    older, newer = Wire(knowing), federation(names="ab")
    found = [carried_out(MINE, engine_of(wire)).outcome.value.state for wire in (older, newer)]
    assert found[0].inertia == found[1].inertia


# What is told is what is asked


@cache
def mixed() -> Model:
    return Model.from_estimator(FederatedGaussianMixture(2, random_state=0).fit(ROWS))


STANDARD = PreprocessingSpec(scale="standard")
BOXED: dict[str, Any] = {"epsilon": 50.0, "bounds": {"x": (-3, 9), "y": (-3, 9)}}
KINDS: dict[str, Any] = {
    "default": fit_of(2),
    "one": fit_of(1),
    "sums": fit_of(2, sums_only=True),
    "start": fit_of(2, init=np.array([[0.0, 0], [6, 6]])),
    "fuzzy": fit_of(2, m=2.0),
    "k-FED": fit_of(2, algorithm="kfed"),
    "FKM": fit_of(2, algorithm="fkm"),
    "averaging": fit_of(2, algorithm="fedavg"),
    "trimmed": fit_of(2, trim=0.1),
    "cosine": fit_of(2, metric="cosine"),
    "incomplete": fit_of(2, prepare=PreprocessingSpec(missing="ignore")),
    "mixture": fit_of(2, model="mixture"),
    "mixture from a start": fit_of(2, model="mixture", init=np.array([[0.0, 0], [6, 6]])),
    "prepared": fit_of(2, prepare=STANDARD),
    "components": fit_of(2, prepare=replace(STANDARD, pca=1)),
    "own": MINE,
    "robust": fit_of(2, robust=1),
    "sampled": fit_of(2, participation=0.5),
    "private": fit_of(2, **BOXED),
    "profile": fit_of(3, profile=True),
    "profile of one": fit_of(1, profile=True),
    "profile of incomplete": fit_of(2, profile=True, prepare=PreprocessingSpec(missing="ignore")),
    "stability": fit_of(2, stability=2),
    "auto": fit_of("auto"),
    "auto mixture": fit_of("auto", model="mixture"),
    "listed": fit_of([2, 4], m=1.5),
    "vote": SelectK(k_max=4, rule="vote"),
    "fuzzy-db": SelectK(k_max=3, rule="fuzzy-db"),
    "own choice": replace(MINE, n_clusters=[2, 3], rule=Rule("squared-silhouette")),
    "likelihood": SelectK(k_max=3),
    "scores": lambda: Evaluate(own_model(), profile=True, metrics=[Absolute()]),
    "scores with labels": lambda: Evaluate(own_model(), labels=True),
    "fuzzy scores": lambda: Evaluate(replace(own_model(), algorithm={"name": "FFCM", "m": 2.0})),
    "scores of a mixture": lambda: Evaluate(mixed()),
    "profiles of a mixture": lambda: Profile(mixed()),
}


@pytest.mark.parametrize("job", KINDS.values(), ids=KINDS)
def test_what_sites_are_told_is_what_they_are_asked(job):
    """A step too many would shut out a site that may not answer it, though nobody asks."""
    job, seen = made(job), list[Task]()

    class Seeing(LocalEngine):
        def ask(self, tasks: Any, sites: Any = None) -> Any:
            seen.extend(tasks)
            return super().ask(tasks, sites)

    columns, labels = (Column("x"), Column("y")), np.repeat(["left", "right"], 30)
    engine = Seeing(Client(n, Data(X, y=labels, columns=columns)) for n, X in ROWS.items())
    planned = procedure_of(job).steps()
    carried_out(job, engine)
    prepared = [task.preprocessor for task in seen if task.preprocessor]
    asked = [*seen, *(each for how in prepared for each, _ in how.assignments)]
    kinds = {type(task.step) for task in asked}
    for step in planned:
        assert (step if isinstance(step, type) else type(step)) in kinds
    own = {task.step for task in asked} & {Mine(), Absolute()}
    assert own <= set(planned), "no step of one's own comes unannounced"
