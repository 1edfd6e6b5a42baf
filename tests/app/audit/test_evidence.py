"""Evidence about a site: what stands behind its sums, what has left it, and what attacks read."""

import json
import re
import stat
from functools import partial

import numpy as np
import pytest
from test_protection import hold
from typed import fails, invoke

from fedcluster import Data
from fedcluster.core import Column
from fedcluster.privacy import Grouping, Groups
from fedcluster_app import SiteFile
from fedcluster_app.audit import audit as auditing
from fedcluster_app.audit._site import Score
from fedcluster_app.audit.audit import ATTACKS, Advantage, Audit, Reading
from fedcluster_app.audit.evidence import evidence, evidence_page, evidence_parts, statement
from fedcluster_app.trust.audit_log import AuditLog

pytestmark = pytest.mark.usefixtures("short_searches")

COLUMNS = (Column("cost"), Column("age"))


def examined(rows):
    return Grouping(Groups(p=3, min_rows=6)).examined(rows, all_columns=True)[1]


def test_shares_are_those_of_the_largest_amounts(monkeypatch) -> None:
    hold(monkeypatch, [np.arange(4), np.arange(4, 7)])
    X = np.array([[1.0, 1], [2, 2], [97, 3], [0, 2], [-50, 1e3], [30, 1e3], [20, 1e3]])
    told, parts = examined(Data(X, columns=COLUMNS)), [X[:4], X[4:]]
    for part in parts:
        i = told.counts.tolist().index(len(part))
        size = np.sort(np.abs(part), axis=0)[::-1]
        np.testing.assert_array_equal(told.amounts[i, :, :2], [size[0], size[1], size.sum(axis=0)])
        np.testing.assert_allclose(told.shares[i, 0, :2], size[0] / size.sum(axis=0))
        np.testing.assert_array_equal(told.agree[i], np.ptp(part, axis=0) == 0)


def test_amounts_of_a_person_are_added_before_they_are_compared(monkeypatch) -> None:
    """Rows of one person that take each other away are no large share; weights count."""
    hold(monkeypatch, [np.arange(3), np.arange(3, 6)])
    X = np.array([[60.0, 1], [-50, 1], [20, 1], [30, 2], [5, 900], [5, 900], [5, 900]])
    persons, weight = np.array([1, 1, 2, 3, 4, 5, 6]), np.array([1.0, 1, 2, 1, 1, 1, 1])
    told = examined(Data(X, weight, groups=persons, columns=COLUMNS))
    i = int(np.argmax(told.amounts[:, 2, 0]))
    assert told.amounts[i, :, 0].tolist() == [40.0, 30.0, 80.0]
    assert told.counts.tolist() == [3, 3]


def site_of(folder, *lines, rows="", head="") -> SiteFile:
    rng = np.random.default_rng(0)
    sick = np.where(np.arange(60) < 55, "knee", "hip")
    table = [f"{rng.normal(50, 9):.0f},{rng.normal():.3f},{s}" for s in sick]
    (folder / "rows.csv").write_text(rows or "\n".join(["age,score,diagnosis", *table]) + "\n")
    source = ['name = "north"', head, "[source]", 'path = "rows.csv"', *lines]
    (folder / "site.toml").write_text("\n".join(source) + "\n")
    return SiteFile.load(folder / "site.toml")


def checked(content):
    return {each["check"]: each["outcome"] for each in content["checks"]}


def test_every_check_says_what_was_found(tmp_path):
    content = evidence(site_of(tmp_path))
    names = ["threshold", "single-value", "nk-rule", "p-ratio", "all-values-are-same"]
    assert list(checked(content)) == names
    assert checked(content)["threshold"] == checked(content)["all-values-are-same"] == "review"
    assert "at least 5 rows" in content["checks"][0]["summary"]
    assert "'diagnosis'" in content["checks"][-1]["summary"]
    assert content["groups"]["units"] == 60
    [diagnosis] = [c for c in content["columns"] if c["column"] == "diagnosis"]
    assert diagnosis["largest_share"] is None
    assert diagnosis["all-values-are-same"] >= content["groups"]["groups"] - 5  # five are hips
    assert not (tmp_path / "site.groups").exists()


def test_groups_of_ten_pass_the_threshold_of_output_checkers(tmp_path):
    assert checked(evidence(site_of(tmp_path, "[groups]", "p = 10")))["threshold"] == "pass"


@pytest.mark.parametrize("as_made", [True, False])
def test_one_amount_that_makes_up_a_sum_is_found(tmp_path, monkeypatch, as_made):
    """Groups are made without one; were they made otherwise, the checks and the sentence say so."""
    if not as_made:
        hold(monkeypatch, list(np.arange(30).reshape(6, 5)))
    rows = "cost,age\n" + "".join(f"{10.0**6 if i == 3 else 1.0},{i}\n" for i in range(30))
    content = evidence(site_of(tmp_path, rows=rows))
    found = [checked(content)[name] for name in ("single-value", "nk-rule", "p-ratio")]
    assert found == (["pass"] * 3 if as_made else ["fail", "review", "review"])
    [cost] = [c for c in content["columns"] if c["column"] == "cost"]
    assert (cost["nk-rule"], cost["p-ratio"]) == (not as_made, not as_made)
    if as_made:
        assert "so no sum tells such a value alone" in content["statement"]
        assert "100 %" not in content["statement"]
    else:
        assert cost["largest_share"] > 0.999 < cost["single_share"]
        assert "one row is at most 100 % of a sum (cost)" in content["statement"]
        assert "so SUMS TELL SINGLE VALUES" in content["statement"]


def test_all_of_a_sum_may_be_one_row_whose_value_many_share(tmp_path):
    """The statement says what follows, so that it does not contradict that attacks read no row."""
    rng = np.random.default_rng(0)
    values = np.c_[rng.normal(50, 9, (200, 4)), rng.poisson(0.5, 200)].tolist()
    lines = [",".join([*(f"{x:.1f}" for x in others), f"{n:.0f}"]) for *others, n in values]
    rows = "\n".join(["age,bmi,pressure,height,relapses", *lines]) + "\n"
    content = evidence(site_of(tmp_path, rows=rows))
    assert "one row is at most 100 % of a sum (relapses)" in content["statement"]
    [single] = [each for each in content["checks"] if each["check"] == "single-value"]
    assert single["outcome"] == "pass"
    assert f"{single['summary']}, so no sum tells such a value alone" in content["statement"]


def test_limits_and_a_budget_promise_something_else(tmp_path):
    limits = evidence(site_of(tmp_path, head='protection = "limits"'))
    assert checked(limits)["threshold"] == "review"
    assert "fewer than 2 rows does not leave" in limits["statement"]
    budget = evidence(site_of(tmp_path, "[privacy]", "epsilon = 1.0", "delta = 1e-6"))
    assert budget["checks"] == []
    assert "every answer has noise" in budget["statement"]


COORDINATOR = ('coordinator = "127.0.0.1:9092"', 'certificate = "system"', 'key = "site.toml"')
FEDERATION = ("[federation]", *COORDINATOR)


def test_what_has_left_is_counted_from_the_log(tmp_path):
    site = site_of(tmp_path, *FEDERATION)
    assert len(site.grouped_client().data) > 0  # of which the log tells, too
    log = AuditLog(tmp_path / "audit.jsonl", "north")
    task = {"task": "Lloyd()", "numbers": 9, "smallest_weight": 5.0, "shape": [3, 2], "bytes": 99}
    line = {"run": "a", "round": 1, "asked_by": "me", "question": "00", "bytes": 99}
    told = {"told": {"limits": [{"name": "Groups", "p": 5}]}, "columns": ["age"]}
    log.append(lambda _head: {**line, **told, "tasks": [task, {**task, "smallest_weight": 7.5}]})
    log.append(lambda _head: {"event": "the rows have changed", "rows": "11"})
    end = log.append(lambda _head: {**line, "question": "01", "refused": "too many"})
    content = evidence(site)
    released = {"runs": 1, "questions": 1, "refused": 1, "numbers": 18, "smallest_weight": 5.0}
    assert content["released"] == {**released, "versions_of_rows": 2}
    assert content["log"] == {"lines": 5, "files": 1, "head": end.hash}
    assert f"the log of 5 lines is whole, {end.hash[:16]}." in content["statement"]
    said = [part for part in evidence_parts(content) if isinstance(part, str)]
    assert said[0].startswith("1 question of 1 run were answered with 18 numbers, none over a w")
    assert said[-1] == statement(content)


def test_a_log_that_was_changed_gives_no_evidence(tmp_path):
    site = site_of(tmp_path, *FEDERATION)
    log = AuditLog(tmp_path / "audit.jsonl", "north")
    log.append(lambda _head: {"event": "one"})
    log.path.write_text(log.path.read_text("utf-8").replace("one", "two"), "utf-8")
    with pytest.raises(ValueError, match="was changed"):
        evidence(site)


def test_the_command_attacks_the_site_and_writes_for_its_owner_alone(tmp_path, monkeypatch):
    """By what is played by default, here few attacks."""
    monkeypatch.setattr(auditing, "audit", partial(auditing.audit, attacks=ATTACKS[:4]))
    site_of(tmp_path, *FEDERATION)
    out = tmp_path / "evidence.json"
    status, said = invoke("site evidence", tmp_path / "site.toml", "--out", out, "--rows", 60)
    assert status == 0, said
    content, page = json.loads(out.read_text("utf-8")), out.with_suffix(".html")
    assert content["audit"]["worst"] == 0
    assert said.splitlines()[-1] == content["statement"]
    assert "known attacks read 0 of 48 rows" in content["statement"]
    assert content["statement"] in page.read_text("utf-8")
    assert "http" not in page.read_text("utf-8").split("</head>")[1]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (out, page)] == [0o600] * 2
    assert not (tmp_path / "site.groups").exists()
    assert not (tmp_path / "audit.jsonl").exists()


@pytest.mark.usefixtures("here")
def test_a_name_that_is_not_of_json_is_refused_before_the_rows_are_read(tmp_path):
    site_of(tmp_path)
    (tmp_path / "rows.csv").unlink()
    line = fails("site evidence site.toml --out", tmp_path)
    assert "name a file that ends with .json" in line


def test_names_from_a_file_do_nothing_on_the_page(tmp_path):
    rows = "<script>x</script>,age\n" + "".join(f"{i},{i}\n" for i in range(30))
    assert "<script>x" not in evidence_page(evidence(site_of(tmp_path, rows=rows)))


def test_the_statement_names_what_attacks_read_of_which_nothing_is_promised(tmp_path):
    """Else it would say that attacks read no row beside a table in which one does."""
    name = "all rows but one known"
    seeds = Reading("seeds that are rows", True, Score(), 9, 9)
    readings = (seeds, Reading(name, False, Score(7, 7), 2, 0))
    audit = Audit("as it is", 48, readings, Advantage(0.1, 0.1), Advantage(0.2, 0.1), 1.01)
    content = evidence(site_of(tmp_path), [audit])
    assert "known attacks read 0 of 48 rows" in content["statement"]
    assert f"; {name}, against which groups promise nothing, read 7" in content["statement"]
    cells = re.sub(r"<[^>]*>", "|", evidence_page(content)).replace("\n", "")
    cells = re.sub(r"\|+", "|", cells)
    assert f"|{name}|7|2|0|" in cells  # what is promised is empty
    assert "|seeds that are rows|0|nothing|9|9|" in cells
