"""Attacks on a site: what they read of exact answers, and nothing of groups."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typed import invoke

from benchmarks.audit import kinds
from fedcluster import __version__
from fedcluster.algorithms.private import RelativeLloyd
from fedcluster.core import Data, Sensitivity
from fedcluster.engines.client import Client
from fedcluster.jobs import _procedure
from fedcluster.privacy import Groups
from fedcluster.privacy import groups as grouping
from fedcluster.privacy._means import SiteTable
from fedcluster.privacy.limits import Rules
from fedcluster.privacy.partition import Partition
from fedcluster_app.audit import _asking as asking
from fedcluster_app.audit import audit as auditing
from fedcluster_app.audit._combining import solved
from fedcluster_app.audit._site import (
    AttackedSite,
    AttackRun,
    Protection,
    Score,
    TrueRows,
    public_of,
    simulated,
    split,
)
from fedcluster_app.audit.audit import (
    ATTACKS,
    PROTECTIONS,
    Advantage,
    Attack,
    Audit,
    audit,
    audit_table,
    canaries,
    membership,
    played,
    sentences,
    signed,
)
from fedcluster_app.secure import site as secure_site
from fedcluster_app.secure.site import SecureSite
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables import sources
from fedcluster_app.trust import permits
from fedcluster_app.trust.audit_log import GroupsLog
from fedcluster_app.wire.policy import PolicyLimits

LIMITS, _, GROUPS, _ = PROTECTIONS
STRONG = {
    "seeds that are rows": 100,
    "batches of one row": 100,
    "sums about far centres": 50,
    "thresholds of a tree": 50,
    "moments of leaves": 50,
    "fuzzy sums, nearly hard": 25,
    "pairs of clusters": 25,
    "random directions": 100,
    "clipped products": 25,
    "answers of a run, paired": 25,
    "trajectories of a run": 50,
    "a row removed": 5,
    "a row added": 5,
    "all rows but one known": 5,
}
"""Rows that an attack reads at least of 160, where answers are exact and limits are in force."""


@pytest.fixture
def few_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three for each row, of thousands."""
    monkeypatch.setattr(asking, "SEEDS", 400)


def site(data: Data, protection: Protection, folder: Path, seed: int = 0) -> AttackedSite:
    mine, others = split(data, np.random.default_rng(seed))
    return AttackedSite(mine, others, protection, folder)


def reads(data: Data, protection: Protection, folder: Path, attacks=ATTACKS) -> dict[str, int]:
    public = public_of(data)
    subject = site(data, protection, folder)
    return {a.name: played(a, subject, public).score.read for a in attacks}


@pytest.mark.thorough
def test_attacks_read_the_rows_of_a_site_with_limits(few_seeds, tmp_path) -> None:
    some = [attack for attack in ATTACKS if attack.name in STRONG]
    assert len(some) == len(STRONG)
    read = reads(simulated(200), LIMITS, tmp_path, some)
    assert {name: n for name, n in read.items() if n < STRONG[name]} == {}


LARGER = pytest.param(GROUPS, marks=pytest.mark.long)
"""Groups of five, which the attacks meet also in rows of persons."""


PROMISED = [attack for attack in ATTACKS if attack.promised]


@pytest.mark.thorough
@pytest.mark.parametrize("protection", [PROTECTIONS[1], LARGER], ids=lambda p: p.name)
def test_no_attack_reads_a_row_of_a_site_with_groups(protection, few_seeds, tmp_path) -> None:
    assert set(reads(simulated(200, 1), protection, tmp_path, PROMISED).values()) == {0}


LATE = [pytest.param(kind, marks=pytest.mark.long) for kind in ("codes", "much missing")]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["persons", *LATE])
def test_groups_keep_rows_of_other_kinds(kind, few_seeds, tmp_path) -> None:
    """`make audit` plays against more."""
    assert set(reads(kinds(5, 100)[kind], GROUPS, tmp_path, PROMISED).values()) == {0}


COHORTS = "secure sums without it"
FORGETS: list[tuple[str, str, Any, str, Any]] = [
    ("who is known again", "persons renamed", Partition, "following", lambda kept, _: kept),
    ("who is known again", "persons renamed", Partition, "check_rows", lambda *_: None),
    ("who is known again", "persons renamed", Partition, "doubtful", lambda _, units: none(units)),
    ("what the log tells of groups", "older groups put back", GroupsLog, "check", lambda *_: None),
    ("which rows other groups hold", "a second study", grouping, "known_rows",
        lambda _, chunks, __: np.zeros(sum(map(len, chunks())), bool)),
    ("means in the folder", "means for each session", SiteFile, "_check_means", lambda _: None),
    ("rows in groups alone", "a row that waits", SiteTable, "of_grouped", lambda table, *_: table),
    ("the header", "rows as names of columns", sources, "_check_header", lambda *_: None),
    ("the header", "rows as names of columns", SiteFile, "for_network", lambda site: site),
    ("rounding", "rounded counts undone", _procedure, "must_round", lambda _: False),
    ("records of a person", "swaps under a budget", Client, "bounded", lambda _, data: data),
    ("a sensitivity", "swaps under a budget", RelativeLloyd, "sensitivity",
        lambda *_: Sensitivity(1.0, 0.5)),
    ("steps within", "steps in preparations", permits, "_within", lambda _: []),
    ("rules", "values alone in a sum", Rules, "mended", lambda _, labels, __: labels),
    ("groups", "a unit wrong, mended", Partition, "without_broken", lambda kept, _: kept),
    ("cohorts", COHORTS, SecureSite, "_check_cohort", lambda *_: None),
    ("cohorts", COHORTS, SecureSite, "_check_left_out", lambda *_: None),
    ("who has rows", COHORTS, secure_site, "_empty", lambda _: ()),
]  # fmt: skip
"""What a site forgets, the attack that then succeeds, and what stands in for what does that."""


def none(units: Any) -> tuple[Any, int]:
    """No unit that is doubtful, and the number of such."""
    return np.zeros(len(units), bool), 0


QUIET = Audit("groups 5", 320, (), Advantage(0.0, 0.0), Advantage(0.0, 0.0), 1.0)


@pytest.mark.parametrize("what", dict.fromkeys(each[0] for each in FORGETS))
def test_attacks_read_rows_of_a_site_that_lacks_what_stops_them(what, tmp_path, monkeypatch):
    """And none of a site as it is."""
    forgets = [each[1:] for each in FORGETS if each[0] == what]
    attack = attack_of(forgets[0][0])
    data = kinds(3, 400)["costs of few"] if "alone" in attack.name else simulated(400, 3)
    folders = [tmp_path / kind for kind in ("as it is", "forgets")]
    for folder in folders:
        folder.mkdir()
    assert played(attack, site(data, GROUPS, folders[0]), public_of(data)).score.read == 0
    for _, owner, name, other in forgets:
        monkeypatch.setattr(owner, name, other)
    assert played(attack, site(data, GROUPS, folders[1]), public_of(data)).score.read > 0


def attack_of(name: str) -> Attack:
    return next(each for each in ATTACKS if each.name == name)


def test_a_rule_tells_one_correction_in_a_group_at_most(tmp_path) -> None:
    """Which nothing is promised of; tables and sentences say so."""
    attack, data = attack_of("a rule and corrections"), simulated(400, 3)
    reading = played(attack, site(data, GROUPS, tmp_path), public_of(data))
    assert not attack.promised
    assert 5 < reading.score.read <= len(data) // 5
    [row] = audit_table([replace(QUIET, readings=(reading,))]).rows[:1]
    assert row[0] == "a rule and corrections (no promise)"
    said = signed(replace(QUIET, readings=(reading,)), date(2026, 1, 2))
    n = reading.score.read
    assert said.endswith(f"row; {attack.name}, against which groups promise nothing, read {n}.")


ENGINES = ("answers of a run, paired", COHORTS)
"""Attacks that run a plan, or secure sums, which a budget refuses before they ask."""


def rows_file(folder: Path, data: Data) -> str:
    """Write rows; return the table of a site file that names them."""
    lines = ["age,weight,pressure,flag,town"]
    for row in data.X:
        cells = ["" if np.isnan(x) else f"{x:g}" for x in row[:4]]
        lines.append(",".join([*cells, data.columns[4].levels[int(row[4])]]))
    (folder / "rows.csv").write_text("\n".join([*lines, ""]))
    return '[source]\npath = "rows.csv"\n'


def test_a_site_under_a_budget_is_attacked_as_it_is(tmp_path) -> None:
    """It answers nothing without noise, and the groups that it does not have are not attacked."""
    site = 'name = "north"\ncolumns = ["age", "weight", "pressure"]\n'
    source = rows_file(tmp_path, simulated(120, 2))
    (tmp_path / "site.toml").write_text(f"{site}{source}[privacy]\nepsilon = 1.0\ndelta = 1e-6\n")
    rows, (now, *_) = auditing.rows_of(tmp_path / "site.toml", 500, 0)
    asked = [each for each in ATTACKS if each.name in STRONG]
    asked = [*asked[:3], *(each for each in ATTACKS if each.name in ENGINES)]
    [found] = audit(rows, [now], n_clusters=2, attacks=asked)
    refused = [each.refused >= each.asked for each in found.readings]
    assert refused == [True] * (3 + len(ENGINES))
    assert (found.worst, found.quality) == (0, None)
    assert {row[1] for row in audit_table([found]).rows[:3]} == {"refused"}


def test_persons_that_are_named_later_are_refused(tmp_path) -> None:
    data = simulated(200, 3)
    subject = site(data, GROUPS, tmp_path)
    reading = played(attack_of("persons named later"), subject, public_of(data))
    assert (reading.score.read, reading.refused) == (0, 1)


@pytest.fixture(scope="module")
def quiet() -> Audit:
    """An audit of groups by an attack that claims nothing."""
    nothing = Attack("nothing", lambda play: play.public.claims(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "SEEDS", 100)
        patch.setattr(auditing, "QUALITY_RUNS", 2)
        [found] = audit(simulated(200), [GROUPS], n_clusters=2, attacks=[nothing])
    return found


def test_a_table_has_a_line_for_each_attack_and_the_last_one_is_a_sentence_to_sign(quiet) -> None:
    table = audit_table([quiet])
    lines = ["nothing", "advantage, members", "advantage, canaries", "J / J of an exact fit"]
    assert [row[0] for row in table.rows] == lines
    assert 0.99 < float(table.rows[-1][1]) < 1.2
    line = (
        rf"On 2026-01-02, fedcluster {__version__} played 1 attack against 160 rows of this site "
        r"with its protection (groups 5), in 0 questions: none of them read a row."
    )
    assert signed(quiet, date(2026, 1, 2)) == line
    assert list(sentences([quiet]))[-1].startswith("On 2")
    loud = replace(quiet.readings[0], score=Score(read=7))
    said = signed(replace(quiet, readings=(loud,)), date(2026, 1, 2))
    assert said.endswith(": nothing read up to 7 rows.")


def test_a_policy_refuses_and_the_rest_reads_nothing(tmp_path) -> None:
    data = simulated(300)
    default = Protection("default", Groups(), policy=PolicyLimits())
    seeds, *_, known = ATTACKS
    refused = played(seeds, site(data, default, tmp_path), public_of(data))
    assert refused.refused == refused.asked > 100
    assert not known.promised  # what groups do not promise is played all the same
    assert played(known, site(data, default, tmp_path), public_of(data)).score.read > 0


@pytest.mark.thorough
def test_members_and_canaries_are_known_where_answers_are_exact(tmp_path) -> None:
    data, public = simulated(200), public_of(simulated(200))
    exact, grouped = (site(data, protection, tmp_path) for protection in (LIMITS, GROUPS))
    assert membership(AttackRun(exact, public)).value == 1.0
    members = membership(AttackRun(grouped, public))
    assert members.value - members.margin < 0.3
    assert canaries(exact, public, np.random.default_rng(5)).value > 0.8
    known = canaries(grouped, public, np.random.default_rng(5))
    assert known.value - known.margin < 0.1


def test_claims_are_counted_beyond_chance() -> None:
    rows = np.array([[10.0, 1.0], [20.0, 2.0], [30.0, 3.0], [40.0, 4.0], [40.0, 4.0], [40.0, 4.0]])
    truth = TrueRows(rows, np.array([[50.0, 5.0]]), np.ones(2), shared=3)
    nothing = np.full((1, 2), np.nan)
    assert truth.score(nothing).read == 0
    claims = np.array([[10.0, 1.0], [20.4, 2.0], [40.0, 4.0], [99.0, 9.0]])
    score = truth.score(claims)
    assert (score.read, score.near, score.alike) == (1, 2, 1)
    everything = np.stack(np.meshgrid(np.arange(60.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    assert truth.score(everything).read == 0  # who claims everything knows nothing


def test_rows_are_solved_for_where_a_combination_of_sums_is_one_row() -> None:
    rows = np.arange(5.0)[:, None] ** 2
    behind = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0]], dtype=float)
    assert np.allclose(np.sort(solved(behind, behind @ rows)[1], axis=0), [[9.0], [16.0]])
    groups = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]], dtype=float)
    assert not len(solved(groups, groups @ rows)[0])


@pytest.mark.thorough
def test_the_command_plays_against_a_site_and_touches_nothing(few_seeds, tmp_path, monkeypatch):
    """It plays what is played by default, here few attacks."""
    others = PROTECTIONS[:1]
    monkeypatch.setattr(auditing, "PROTECTIONS", others)
    monkeypatch.setitem(auditing.audit.__kwdefaults__, "attacks", ATTACKS[:4])
    toml, out = tmp_path / "site.toml", tmp_path / "out"
    source = 'name = "north"\n' + rows_file(tmp_path, simulated(120, 2))
    toml.write_text(source)
    before = sorted(tmp_path.iterdir())
    status, said = invoke("audit", toml, "--fail-above", 0, "--json")
    assert status == 0, said
    audits = json.loads(said)["audits"]
    assert [a["protection"] for a in audits] == ["as it is", *(p.name for p in others)]
    assert audits[0]["worst"] == 0 < audits[1]["worst"]
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.setattr(auditing, "PROTECTIONS", ())
    toml.write_text('protection = "limits"\n' + source + "[limits]\nmin_cluster_size = 5\n")
    status, said = invoke("audit", toml, "--fail-above", 0, "--out", out)
    assert status == 1
    assert "Rows that each attack reads, of 96" in said
    assert json.loads((out / "audit.json").read_text())["audits"][0]["worst"] > 50


def test_the_command_says_what_it_needs() -> None:
    status, said = invoke("audit")
    assert (status, "name a site.toml, or give --simulated" in said) == (2, True)


def test_the_screen_shows_every_attack(quiet, monkeypatch) -> None:
    each = replace(quiet, readings=quiet.readings * 30)
    monkeypatch.setattr(auditing, "audit", lambda *_args, **_more: iter([each]))
    status, said = invoke("audit --simulated --rows 50")
    assert status == 0, said
    assert sum(line.startswith("nothing") for line in said.splitlines()) == 30
    assert "J / J of an exact fit" in said
