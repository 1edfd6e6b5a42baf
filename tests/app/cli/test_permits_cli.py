"""Permits and the log by the commands, and over the whole way of a question."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from grids import KNOWN, over_grid, process_grid
from hypothesis import given
from hypothesis import strategies as st
from typed import cases, fails, invoke

from fedcluster.engines import wire
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Evaluate, SelectK, fit_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.coordinator.run_job import run_job
from fedcluster_app.coordinator.runs import Run, content_of, how_to_go_on
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_auditor, site_log, site_responder
from fedcluster_app.trust.audit_log import read_log, verify
from fedcluster_app.trust.permits import LABEL_STEPS, NO_PERMIT, STEPS
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

pytestmark = pytest.mark.usefixtures("short_searches")

SITES = ["north", "south"]
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(2, 60, 2)) + 6 * RNG.integers(0, 3, (2, 60, 1))
TERMS = {"--purpose": "Groups of patients", "--rounds": 40, "--end": "2090-12-31"}
PREPARED = PreprocessingSpec(missing="mean")


@pytest.fixture
def trial(tmp_path):
    """A federation whose sites demand permits."""
    folder = tmp_path / "trial"
    create(folder, SITES, "cluster.example.org:8443")
    for name, X in zip(SITES, ROWS, strict=True):
        lines = [f"{x!r},{y!r},{3 * y!r},{'ab'[x > 3]}" for x, y in X.tolist()]
        (folder / "sites" / name / "rows.csv").write_text(
            "\n".join(["age,bmi,salary,side", *lines, ""])
        )
        text = toml(folder, name).read_text().replace("[source]", 'label_column = "side"\n[source]')
        toml(folder, name).write_text(text + "\n[permits]\nrequired = true\n")
        SiteFile.load(toml(folder, name)).confirm()
    return folder


def toml(trial, name="north"):
    return trial / "sites" / name / "site.toml"


def permits(trial, *words, name="north"):
    return invoke("site permit", toml(trial, name), *words)


def log_of(trial):
    return trial / "sites/north/logs/audit.jsonl"


def granting(trial, *more, columns="age,bmi"):
    """The command that grants a permit with the usual terms, except those that are given."""
    usual = [part for each in TERMS.items() if each[0] not in more for part in each]
    return ["federation permit", trial, "hips-1", "--columns", columns, *usual, *more]


def grant(trial, *more):
    status, said = invoke(*granting(trial, *more))
    assert status == 0, said
    return trial / "permits" / "hips-1.toml"


def granted(trial, *more):
    """A permit that all sites have accepted."""
    path = grant(trial, *more)
    for name in SITES:
        status, said = permits(trial, path, "--accept", name=name)
        assert (status, said[:22]) == (0, "Accepted permit hips-1"), said
    return path


def responder(trial, name="north"):
    """A site as its program answers, but in this process."""
    site = SiteFile.load(toml(trial, name))
    columns = site.opened(raw=True).columns
    auditor = site_auditor(site, Membership.from_site_file(site), columns, str)
    how = {"columns": columns, "choose": site.client, "auditor": auditor, **KNOWN}
    return Responder(site.client(columns), keep=lambda model: None, **how)


def engine(trial, permit="hips-1") -> RemoteEngine:
    sites = [responder(trial, name) for name in SITES]
    return over_grid(*process_grid(sites), deadline=3600.0, permit=permit)


def content(out, kind, job, **more):
    given = {"parameters": asdict(job), "columns": ["age", "bmi"], "out": str(out)}
    return {"job": kind, **given, **more}


def fit(trial, job=None, **more):
    """Carry a fit out under the permit."""
    out = trial.parent / "out"
    return run_job(engine(trial), content(out, "fit", job or fit_of(3), **more), out / "run")


@pytest.mark.thorough
def test_every_job_goes_through_under_a_permit_with_the_usual_steps(trial, tmp_path):
    """Evaluation with labels, too; the log names the permit, and the run has the logs' heads."""
    granted(trial, "--labels")
    assert fit(trial, fit_of(3, prepare=PREPARED))["model_at"] == SITES
    select = content(tmp_path / "k", "select-k", SelectK(k_max=4, prepare=PREPARED))
    run_job(engine(trial), select, tmp_path / "run-k")
    model = Evaluate(str(tmp_path / "out" / "model.json"), labels=True)
    scored = content(tmp_path / "scores", "evaluate", model)
    run_job(engine(trial), scored, tmp_path / "run-scores")
    lines = [*read_log(log_of(trial))]
    assert {line["permit"] for line in lines if "question" in line} == {"hips-1"}
    heads = json.loads((tmp_path / "run-scores" / "log-heads.json").read_text())
    for name in SITES:
        status, said = invoke("site log", toml(trial, name), "--head", heads[name])
        assert status == 0, said
        assert re.search(r"Up to line \d+ it is the log that was known", said)
    said = permits(trial)[1]
    used = sum("question" in line and line.get("permit") == "hips-1" for line in lines)
    assert f"rounds: 40, {used} used" in said
    assert "columns: age, bmi" in said
    assert "labels: yes" in said


@pytest.mark.parametrize(
    "job",
    [
        fit_of(3, model="mixture", n_init=2, max_iter=3, prepare=PREPARED),
        fit_of(3, metric="cosine", max_iter=3, prepare=PREPARED),
        fit_of(3, max_iter=3, prepare=PREPARED),
        fit_of(3, trim=0.1, max_iter=3, prepare=PREPARED),
        fit_of(3, max_iter=3, prepare=PreprocessingSpec(missing="ignore")),
        fit_of(3, max_iter=3, prepare=PreprocessingSpec("robust", missing="median")),
    ],
    ids=["mixture", "cosine", "best", "trim", "missing", "quantiles"],
)
def test_the_usual_steps_are_those_of_other_fits_too(trial, job):
    granted(trial)
    assert fit(trial, job)["model_at"] == SITES


@pytest.mark.parametrize("permit", [None, "hips-2"])
def test_a_site_that_demands_a_permit_says_nothing_without_one(permit, trial, tmp_path):
    """Not its columns, not how many rows it has, not its limits: its name alone."""
    granted(trial)
    with pytest.raises(SiteError, match=r"north.* and .*: refused the question: this site"):
        run_job(engine(trial, permit), content(tmp_path / "o", "fit", fit_of(3)), tmp_path / "r")
    site = responder(trial)
    asked: list[dict[str, object]] = [
        {},
        {"described": []},
        {"labels": True},
        {"model": {"format_version": 1}},
        {"columns": ["age"], "permit": "../hips-1"},
    ]
    for header in asked:
        question = wire.pack({"protocol": 1, "tasks": [], **header}, {})
        reply, arrays = wire.unpack(site.reply(question))
        assert set(reply) == {"protocol", "about", "question", "site", "refused"}
        assert arrays == {}
    assert not (trial / "sites/north/results").exists()


def test_what_the_permit_does_not_cover_is_refused_by_name(trial):
    granted(trial)
    for job, columns, reason in (
        (fit_of(3), ["age", "salary"], "permit 'hips-1' does not cover all columns: salary"),
        (fit_of(3), None, "permit 'hips-1' does not cover all columns; name those that it does"),
        (fit_of(3, algorithm="kfed"), ["age"], "permit 'hips-1' does not cover step 'KFed'"),
    ):
        with pytest.raises(SiteError, match=f"north.* and .*: refused the question: {reason}"):
            fit(trial, job, columns=columns)


def test_a_permit_that_is_revoked_ends_a_site_that_runs(trial):
    granted(trial)
    running = engine(trial)
    running.choose(["age"])
    running.introduce()
    assert permits(trial, "hips-1", "--revoke") == (0, "Revoked permit hips-1.\n")
    running.choose(["bmi"])
    with pytest.raises(SiteError, match="north: refused the question: permit 'hips-1' was revoked"):
        running.introduce()
    assert "REVOKED" in permits(trial)[1]
    unknown = permits(trial, "x", "--revoke")[1]
    assert unknown.startswith("error: permit 'x' was never accepted here; there is hips-1")


def test_an_offered_permit_is_shown_before_it_is_accepted(trial):
    path = grant(trial)
    status, said = permits(trial, path)
    assert status == 0
    assert "purpose: Groups of patients" in said
    assert "labels: no" in said
    assert "rounds: 40, not accepted here" in said
    assert permits(trial) == (0, "No permit was accepted here.\n")
    for words in (["--accept"], ["--revoke"], [path, "--accept", "--revoke"]):
        status, said = permits(trial, *words)
        assert (status, "--accept needs the file of a permit" in said) == (2, True), said
    path.write_text(path.read_text().replace("rounds = 40", "rounds = 41"))
    status, said = permits(trial, path)
    assert (status, said.count("\n")) == (2, 1)
    assert "is not granted by the coordinator" in said


@pytest.mark.parametrize(
    ("more", "reason"),
    cases("""
        --purpose a\x1b[2Jb => permit 'hips-1': purpose must be text without control
        --sites north,east => has no site 'east'
        --rounds 0 => permit 'hips-1': rounds must be a whole number of at least 1
        --end 2001-01-01 => permit 'hips-1': end is before start
        --end soon => soon
    """),
)
@pytest.mark.usefixtures("here")
def test_terms_of_a_permit_that_mean_nothing_are_refused(more, reason, trial):
    assert reason in fails(*granting(trial, *more.split()))
    assert not (trial / "permits" / "hips-1.toml").exists()


@pytest.mark.usefixtures("here")
def test_a_permit_is_not_written_over_another(trial):
    grant(trial)
    assert "hips-1.toml exists; give the permit another id" in fails(*granting(trial))


@pytest.mark.parametrize(
    ("wrong", "words"),
    cases("""
        required = "yes" => [permits], required must be true or false, not 'yes'
        requird = true => [permits], unknown key 'requird'; did you mean 'required'?
        required = 1 => [permits], required must be true or false, not 1
    """),
)
def test_a_wrong_table_of_permits_is_refused(wrong, words, trial):
    path = toml(trial)
    path.write_text(path.read_text().replace("required = true", wrong))
    status, said = invoke("site start", path)
    assert (status, words in said) == (2, True), said


def test_a_permit_brings_its_columns(trial, tmp_path):
    """Unless others are named."""
    granted(trial)
    federation, folder = Federation.load(trial), tmp_path / "run"
    options = RunOptions(tmp_path / "out", permit="hips-1")
    for columns, wanted in ((None, ["age", "bmi"]), (["age"], ["age"])):
        begun = content_of(federation, folder, fit_of(3), replace(options, columns=columns))
        assert (begun["permit"], list(begun["columns"])) == ("hips-1", wanted)
    with pytest.raises(InputError, match=r"other.toml does not exist"):
        content_of(federation, folder, fit_of(3), replace(options, permit="other"))


WITHOUT = f"round 1: 0 of 3 sites answered (north: refused the question: {NO_PERMIT}, and so on)"
BESIDE = "north: permit 'hips-1' does not cover step 'Quantiles'"
RUN = "fedcluster federation run DIR"


@pytest.mark.parametrize(
    ("error", "permit", "permits", "advice"),
    [
        (WITHOUT, None, ["hips-1", "hips-2"], "begin anew with --permit ID, or see"),
        (BESIDE, "hips-1", [], "begin anew with a permit that does, see"),
        (WITHOUT, None, ["hips-1"], "begin anew with --permit hips-1, or see"),
        (WITHOUT, "hips-1", ["hips-1"], f"when that is mended: {RUN} resume run-1"),
    ],
)
def test_a_run_without_a_permit_is_told_to_name_one(error, permit, permits, advice, tmp_path):
    """To resume it would ask the same again."""
    folder = tmp_path / "runs" / "run-1"
    (tmp_path / "permits").mkdir()
    folder.mkdir(parents=True)
    for name in permits:
        (tmp_path / "permits" / f"{name}.toml").touch()
    (folder / "job.json").write_text(json.dumps({"permit": permit}))
    (folder / "outcome.json").write_text(json.dumps({"done": False, "error": error}))
    run = Run.load(folder)
    assert (run.state, run.error) == ("failed", error)
    assert how_to_go_on(run, folder, "DIR").startswith(advice)


def test_a_log_that_was_touched_keeps_the_site_from_starting(trial):
    """And `site log` names the line; with another head, that it is another log."""
    granted(trial)
    fit(trial)
    status, said = invoke("site log", toml(trial), "--json")
    told = json.loads(said)
    last = [*read_log(Path(told["log"]))][-1]
    assert (status, told["files"], last["line"] > 5) == (0, 1, True)
    shown = invoke("site log", toml(trial))[1]
    assert f"The log is in order: {last['line']} lines in 1 file." in shown
    assert shown.endswith(f"The last line has the hash {told['head']}\n")
    for head, reason in (("0" * 64, "no line has the hash 0000"), ("12", "at least 16 digits")):
        status, said = invoke("site log", toml(trial), "--head", head)
        assert (status, reason in said) == (2, True), said
    log = log_of(trial)
    log.write_bytes(log.read_bytes().replace(b'"Lloyd(tol=0.0001)"', b'"Inertia()"', 1))
    changed = [b'"Inertia()"' in line for line in log.read_bytes().splitlines()]
    for command in ("log", "start"):
        status, said = invoke("site", command, toml(trial))
        assert (status, said.count("\n")) == (2, 1), said
        assert f"audit.jsonl, line {1 + changed.index(True)}: was changed" in said


def test_a_log_is_shown_before_it_is_said_that_its_end_was_cut_off(trial):
    granted(trial)
    fit(trial)
    whole = log_of(trial).read_bytes().splitlines(keepends=True)
    log_of(trial).write_bytes(b"".join(whole[:-1]))
    status, said = invoke("site log", toml(trial))
    assert (status, "left site north" in said) == (2, True)
    assert "lines were cut off" in said.splitlines()[-1]
    assert "in order" not in said
    (trial / "sites/south/logs/audit.jsonl").unlink()
    status, said = invoke("site log", toml(trial, "south"))
    gone = "is gone, and audit.head tells of it: put back a copy"
    assert (status, gone in said) == (2, True), said


def test_a_log_that_breaks_while_a_site_runs_stops_its_answers(trial):
    """Nothing but the kind of the error leaves."""
    granted(trial)
    site = responder(trial)
    question = wire.pack({**KNOWN_GOOD, "exchange": 0}, {})
    assert "limits" in wire.unpack(site.reply(question))[0]
    log = log_of(trial)
    content = log.read_bytes()
    for broken in (content[:-200], content + b'{"line":9}\n', b""):
        log.write_bytes(broken)
        reply, arrays = wire.unpack(site.reply(question))
        assert set(reply) == {"protocol", "about", "question", "site", "failed"}, broken
        assert arrays == {}
        log.write_bytes(content)
    assert "limits" in wire.unpack(responder(trial).reply(question))[0]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = ("protocol", "run", "exchange", "permit", "columns", "tasks", "described", "labels", "raw")
KNOWN_GOOD = {"protocol": 1, "run": "r", "permit": "hips-1", "columns": ["age"], "tasks": []}


@pytest.mark.thorough
@given(changed=st.dictionaries(st.sampled_from((*KEYS, "model", "cancel")), JUNK, max_size=4))
def test_whatever_a_question_holds_one_line_is_written_and_no_more_is_told(changed, trial):
    """No exception, no answer beside the permit, and the chain holds."""
    if not (trial / "permits").exists():
        granted(trial, "--rounds", 1000)
    site, before = responder(trial), verify(log_of(trial))[0].line
    reply, _ = wire.unpack(site.reply(wire.pack({"exchange": 0, **KNOWN_GOOD, **changed}, {})))
    assert verify(log_of(trial))[0].line == before + 1
    told = set(reply) - {"protocol", "about", "question", "site", "run", "exchange"}
    if not told & {"refused", "failed"} and told:
        assert set(reply["columns"]) <= {"age", "bmi"}
        assert changed.get("permit", "hips-1") == "hips-1"
    assert "salary" not in json.dumps(reply) or "salary" in str(changed)


def test_no_column_by_name_is_not_all_of_them(trial):
    """An empty list is within every permit, and the site would describe what it has."""
    granted(trial)
    question = {"exchange": 0, **KNOWN_GOOD, "columns": [], "described": []}
    reply, _ = wire.unpack(responder(trial).reply(wire.pack(question, {})))
    assert reply["refused"] == "no column is asked for: name some, or leave the list out"


def test_a_site_that_has_accepted_a_permit_can_start_for_the_first_time(trial):
    """Its log has lines, but no answer has left: there are no groups of rows yet to be lost."""
    granted(trial)
    site = SiteFile.load(toml(trial))
    site_responder(site, Membership.from_site_file(site), lambda line: None).end("the test is over")


def test_who_asked_is_the_certificate_that_was_checked(trial):
    site = SiteFile.load(toml(trial))
    membership = Membership.from_site_file(site)
    asked_by = site_auditor(site, membership, ["age"], str).asked_by
    assert re.fullmatch("cluster.example.org:8443, certificate [0-9a-f]{64}", asked_by)
    assert site_log(site, membership).path == log_of(trial)


def test_known_steps_cover_the_usual_ones():
    assert set(STEPS + LABEL_STEPS) <= set(KNOWN["steps"])
