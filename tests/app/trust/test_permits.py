"""Permits: what is not covered by a signed, accepted, unexpired, unrevoked one is not answered."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from fedcluster.engines.wire import WireError
from fedcluster.errors import InputError
from fedcluster_app.coordinator.certificates import issue
from fedcluster_app.trust.audit_log import AuditLog, verify
from fedcluster_app.trust.permits import (
    GRANTED,
    Asked,
    Permit,
    SitePermits,
    accepted,
    authority_digest,
    check_signature,
    coordinator_identity,
    load_key,
    load_public_key,
    new_key,
    next_round,
    sign,
    signatures,
)


class Federation:
    """A coordinator's keys, and the folders of its sites."""

    def __init__(self, folder: Path, sites: tuple[str, ...] = ("north", "south")) -> None:
        self.folder, self.sites = folder, sites
        for name, content in issue(["cluster.example.org"], sites).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        private, own = new_key()
        (folder / "permit.key").write_bytes(private)
        for site in sites:
            (folder / "sites" / site / "state/coordinator.pub").write_bytes(own)

    def site(self, name: str) -> SitePermits:
        home = self.folder / "sites" / name
        kept = (home / "state" / each for each in ("ca.crt", "coordinator.pub", "permit.key"))
        authority, granter, key = kept
        known = coordinator_identity(authority, "")
        return SitePermits(home / "permits", name, known, granter, key)

    def log(self, name: str) -> AuditLog:
        return AuditLog(self.folder / "sites" / name / "logs/audit.jsonl", name)

    def permit(self, **changes: object) -> Path:
        """A permit, signed by the coordinator."""
        permit = Permit(
            id="hips-1",
            purpose='Clusters of patients with "hips", for a study on μ-motion',
            coordinator=authority_digest(self.folder / "certificates/ca.crt"),
            sites=self.sites,
            columns=("age", "bmi"),
            labels=False,
            steps=("Lloyd", "SiteSize"),
            rounds=3,
            start=date(2020, 1, 1),
            end=date(2090, 12, 31),
        )
        permit = replace(permit, **changes)  # type: ignore[arg-type]
        path = self.folder / "given.toml"
        path.write_text(permit.text(), encoding="utf-8")
        path.with_suffix(".sig").unlink(missing_ok=True)
        sign(path.with_suffix(".sig"), permit, GRANTED, load_key(self.folder / "permit.key"))
        return path

    def accept(self, site: str = "north", **changes: object) -> Permit:
        """Accept a permit at a site."""
        return self.site(site).accept(self.permit(**changes), self.log(site))


@pytest.fixture
def trial(tmp_path: Path) -> Federation:
    return Federation(tmp_path / "trial")


def asked(**changes: object) -> Asked:
    header = {"columns": ["age"], "tasks": [{"step": "Lloyd"}], "permit": "hips-1", **changes}
    question = str(header.pop("question", "q0"))
    given = {key: value for key, value in header.items() if value is not None}
    return Asked.from_header(given, question, ("age", "bmi", "salary"))


def admitted(trial: Federation, site: str = "north", **changes: object) -> Permit:
    with trial.log(site).locked() as head:
        return trial.site(site).admit(asked(**changes), head)


def use(trial: Federation, question: str) -> None:
    """Answer a question."""
    want, north = asked(question=question), trial.site("north")
    trial.log("north").append(lambda head: next_round(north.admit(want, head), want, head))


def test_a_permit_is_read_as_it_was_written(trial: Federation) -> None:
    path = trial.permit()
    permit = Permit.load(path)
    assert permit.text() == path.read_text("utf-8")
    assert permit.purpose.endswith("μ-motion")
    path.write_text("# checked\n" + path.read_text("utf-8").replace(" = ", "   =  "), "utf-8")
    assert Permit.load(path).digest == permit.digest
    key = load_public_key(trial.folder / "sites/north/state/coordinator.pub")
    check_signature(path.with_suffix(".sig"), Permit.load(path), GRANTED, key)


def test_what_is_covered_is_admitted(trial: Federation) -> None:
    permit = trial.accept()
    assert admitted(trial) == admitted(trial, tasks=[]) == permit
    assert admitted(trial, columns=["bmi", "age"], described=["bmi"]) == permit
    assert admitted(trial, tasks=[{"step": "SiteSize"}, {"step": "Lloyd"}]) == permit
    assert admitted(trial, **preparing({"columns": [], "assigned": MEANS})) == permit
    assert admitted(trial, **preparing({"columns": [], "principal": {"own": "x"}})) == permit
    signed = signatures(trial.folder / "sites/north/permits/hips-1.sig")
    assert set(signed) == {GRANTED, "accepted by north"}
    assert (trial.folder / "sites/north/state/permit.key").stat().st_mode & 0o777 == 0o600


def preparing(how: object) -> dict[str, Any]:
    """A question whose rows are prepared, and again as before."""
    return {"tasks": [{"step": "Lloyd", "preprocessing": each} for each in (how, 0)]}


MEANS: Any = {"task": {"step": "Lloyd", "fields": {}}}
FUZZY: Any = {"task": {"step": "FKM", "fields": {}}}

BOTH = [{"assigned": MEANS}, {"columns": [], "assigned": FUZZY}]
NOT_COVERED = {
    "no permit": ({"permit": None}, "answers under a permit only"),
    "a path": ({"permit": "../../south/permits/hips-1"}, "answers under a permit only"),
    "no text": ({"permit": ["hips-1"]}, "answers under a permit only"),
    "a column": ({"columns": ["age", "salary"]}, "does not cover all columns: salary"),
    "a column to describe": ({"described": ["salary"]}, "does not cover all columns: salary"),
    "all columns": ({"columns": None}, "does not cover all columns; name those"),
    "labels": ({"labels": True}, "does not cover labels"),
    "a step with labels": ({"tasks": [{"step": "Contingency"}]}, "does not cover labels"),
    "a step": ({"tasks": [{"step": "Lloyd"}, {"step": "FKM"}]}, "does not cover step 'FKM'"),
    "a step that assigns": (preparing({"assigned": FUZZY}), "does not cover step 'FKM'"),
    "one of two that do": (preparing({"crossed": BOTH}), "does not cover step 'FKM'"),
    "an unnamed step that assigns": (preparing({"assigned": {"task": {}}}), "step 'None'"),
    "an odd preparation": (preparing({"assigned": 3}), "preparation of a task is not understood"),
    "two odd ones": (preparing({"crossed": 3}), "preparation of a task is not understood"),
    "no step": ({"tasks": [{}]}, "does not cover step 'None'"),
    "tasks that are none": ({"tasks": ["Lloyd"]}, "the tasks are not a list"),
    "tasks by number": ({"tasks": {"0": {"step": "FKM"}}}, "the tasks are not a list"),
    "columns that are none": ({"columns": "age"}, "not a list of names"),
    "columns of lists": ({"columns": [["age"]]}, "not a list of names"),
}


@pytest.mark.parametrize(("changes", "reason"), NOT_COVERED.values(), ids=NOT_COVERED)
def test_what_is_not_covered_is_refused(changes, reason, trial):
    """What the site has and the question does not name is not told by the reason either."""
    trial.accept()
    with pytest.raises(WireError, match=reason) as caught:
        admitted(trial, **changes)
    assert ("salary" in str(caught.value)) == ("salary" in str(changes))


def test_nothing_is_admitted_before_a_permit_is_accepted(trial: Federation) -> None:
    """Not even where somebody put the signed file into the folder."""
    folder = trial.folder / "sites/north/permits"
    folder.mkdir()
    path = trial.permit()
    shutil.copy(path, folder / "hips-1.toml")
    shutil.copy(path.with_suffix(".sig"), folder / "hips-1.sig")
    with pytest.raises(WireError, match="answers under a permit only"):
        admitted(trial)


def text(old: str, new: str) -> Callable[[Federation, Path], None]:
    def change(trial: Federation, path: Path) -> None:
        content = path.read_text("utf-8")
        assert old in content
        path.write_text(content.replace(old, new), "utf-8")

    return change


def forged(trial: Federation, path: Path) -> None:
    """Signed by a key that is not the coordinator's."""
    (trial.folder / "other.key").write_bytes(new_key()[0])
    path.with_suffix(".sig").unlink()
    sign(path.with_suffix(".sig"), Permit.load(path), GRANTED, load_key(trial.folder / "other.key"))


def role_of_a_site(trial: Federation, path: Path) -> None:
    """The coordinator's signature of something else."""
    permit, signed = Permit.load(path), path.with_suffix(".sig")
    sign(signed, permit, accepted("north"), load_key(trial.folder / "permit.key"))
    found = signatures(signed)
    signed.write_text(json.dumps({GRANTED: asdict(found[accepted("north")])}))


def other_signature(content: str) -> Callable[[Federation, Path], None]:
    def change(trial: Federation, path: Path) -> None:
        path.with_suffix(".sig").write_text(content)

    return change


NO_BASE64 = json.dumps({GRANTED: {"key": "", "signature": "é"}})
BAD = {
    "more rounds": (text("rounds = 3", "rounds = 300"), "is not granted by the coordinator"),
    "another column": (text('"age"', '"salary"'), "is not granted by the coordinator"),
    "another key": (forged, "is not granted by the coordinator with the key that is known"),
    "another role": (role_of_a_site, "is not granted by the coordinator"),
    "no signature": (other_signature("{}"), "is not granted by the coordinator"),
    "no JSON": (other_signature("x"), "given.sig is damaged: JSON is malformed"),
    "no Base64": (other_signature(NO_BASE64), "is not granted by"),
    "signature without": (lambda t, p: p.with_suffix(".sig").unlink(), "sig does not exist"),
    "no file": (lambda t, p: p.unlink(), "given.toml does not exist"),
    "no TOML": (lambda t, p: p.write_text("= 3"), "given.toml is not TOML"),
    "a key too many": (lambda t, p: p.write_text("x = 1\n" + p.read_text()), "unknown key 'x'"),
    "an id that is a path": (text('"hips-1"', '"../hips"'), "use at most 64 letters, digits"),
    "no rounds": (text("rounds = 3", "rounds = 0"), "rounds must be a whole number of at least 1"),
    "an end before": (text("2090-12-31", "2019-12-31"), "end is before start"),
    "labels": (text("labels = false", "labels = true"), "is not granted by the coordinator"),
    "no steps": (text('["Lloyd", "SiteSize"]', "[]"), "steps must be text without control"),
    "an escape": (text('"Lloyd"', '"\\u001b[2J"'), "steps must be text without control"),
}


@pytest.mark.parametrize(("change", "reason"), BAD.values(), ids=BAD)
def test_a_permit_that_was_changed_or_forged_is_refused_in_one_line(change, reason, trial):
    path = trial.permit()
    change(trial, path)
    with pytest.raises(InputError, match=reason) as caught:
        trial.site("north").accept(path, trial.log("north"))
    assert "\n" not in str(caught.value)
    assert not (trial.folder / "sites/north/permits").exists()


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_turned_bit_of_an_accepted_permit_is_noticed_or_says_nothing(place, bit, trial):
    """Spaces aside: the digest that stands in the log is that of what is admitted."""
    path = trial.folder / "sites/north/permits/hips-1.toml"
    if not path.exists():
        trial.accept()
    content = path.read_bytes()
    turned = bytearray(content)
    turned[place % len(content)] ^= 1 << bit
    path.write_bytes(turned)
    try:
        permit = admitted(trial)
    except InputError:
        permit = None
    path.write_bytes(content)
    assert permit in (None, admitted(trial))


def test_a_permit_of_another_federation_or_site_is_refused(trial, tmp_path):
    other = Federation(tmp_path / "other")
    theirs = other.permit()
    with pytest.raises(InputError, match="is not granted by the coordinator with the key that"):
        trial.site("north").accept(theirs, trial.log("north"))
    shutil.copy(other.folder / "permit.key", trial.folder / "permit.key")
    key = trial.folder / "sites/north/state/coordinator.pub"
    shutil.copy(other.folder / "sites/north/state/coordinator.pub", key)
    with pytest.raises(InputError, match="permit 'hips-1' is of another federation"):
        trial.site("north").accept(theirs, trial.log("north"))
    with pytest.raises(InputError, match="permit 'hips-1' is not for site 'north'"):
        trial.accept(sites=("south",))


def test_what_another_site_accepted_is_not_accepted_here(trial: Federation) -> None:
    """Neither its files nor, with them, its log."""
    trial.accept("south")
    north, south = (trial.folder / "sites" / name for name in ("north", "south"))
    shutil.copytree(south / "permits", north / "permits")
    with pytest.raises(WireError, match="answers under a permit only"):
        admitted(trial)
    for name in ("audit.jsonl", "audit.head"):
        shutil.copy(south / "logs" / name, north / "logs" / name)
    with pytest.raises(InputError, match="the log is of site 'south'"):
        admitted(trial)


@pytest.mark.parametrize("name", ["permit.key", "coordinator.pub"])
def test_a_key_that_was_replaced_after_the_acceptance_admits_nothing(name, trial):
    trial.accept()
    home = trial.folder / "sites/north/state"
    private, public = new_key()
    other, of_another_kind = {
        "permit.key": (private, home / "key"),
        "coordinator.pub": (public, trial.folder / "keys/north.pub"),
    }[name]
    for content, reason in (
        (other, r"is not (accepted|granted) by"),
        (b"x", r"holds no key to (sign|check) permits"),
        (of_another_kind.read_bytes(), r"holds no key to (sign|check) permits"),
    ):
        (home / name).write_bytes(content)
        with pytest.raises(InputError, match=reason):
            admitted(trial)


def test_rounds_are_counted_and_end(trial: Federation) -> None:
    """One that is asked again is not another; neither a restart nor a new acceptance forgets.

    A refused question does not become the last one: else the same words, said twice, would be
    heard the second time.
    """
    for questions in ("q1 q1 q2", "q2 q3 q3"):
        trial.accept()
        for question in questions.split():
            use(trial, question)
    for question in ("q4", "q1", "q4"):
        with pytest.raises(WireError, match="is for 3 rounds, and all are used"):
            use(trial, question)
        trial.log("north").append(lambda head: {"question": "q4", "refused": "all are used"})
    trial.accept()
    with pytest.raises(WireError, match="all are used"):
        use(trial, "q4")
    trial.accept(rounds=4)  # a new one, so named
    use(trial, "q4")
    with pytest.raises(WireError, match="is for 4 rounds, and all are used"):
        use(trial, "q5")
    head, _ = verify(trial.folder / "sites/north/logs/audit.jsonl")
    assert head.permits["hips-1"]["used"] == 4


def test_files_that_are_deleted_give_no_round_back(trial: Federation) -> None:
    """The count stands in the log alone: without the log nothing is accepted."""
    home = trial.folder / "sites/north"
    trial.accept()
    use(trial, "q1")
    shutil.copytree(home, trial.folder / "before")
    (home / "logs/audit.jsonl").unlink()
    with pytest.raises(InputError, match=r"is gone, and audit.head tells of it"):
        use(trial, "q2")
    (home / "logs/audit.head").unlink()
    with pytest.raises(WireError, match="answers under a permit only"):
        use(trial, "q2")
    shutil.rmtree(home)
    shutil.copytree(trial.folder / "before", home)
    use(trial, "q2")
    shutil.copy(trial.folder / "before/logs/audit.jsonl", home / "logs/audit.jsonl")
    with pytest.raises(InputError, match="lines were cut off"):
        use(trial, "q3")


def test_only_the_days_of_a_permit_are_covered_even_if_a_clock_is_set_back(trial) -> None:
    """The log has seen a later day; its lines are chained, so that day cannot be taken back."""
    with pytest.raises(InputError, match="the last day of permit 'hips-1' is over"):
        trial.accept(end=date(2020, 1, 2))
    trial.accept(start=date(2089, 1, 1))
    with pytest.raises(WireError, match="is for the days from 2089-01-01 to 2090-12-31, UTC"):
        admitted(trial)
    trial.accept()
    admitted(trial)
    trial.log("north").append(lambda head: {"time": "2091-01-01T00:00:00.000+00:00"})
    with pytest.raises(WireError, match="is for the days from"):
        admitted(trial)
    with pytest.raises(InputError, match="the last day of permit 'hips-1' is over"):
        trial.accept()


def test_a_revoked_permit_admits_nothing_until_it_is_accepted_again(trial: Federation) -> None:
    log = trial.log("north")
    with pytest.raises(InputError, match="permit 'hips-1' was never accepted here; there is none"):
        trial.site("north").revoke("hips-1", log)
    trial.site("north").accept(trial.permit(), log)
    use(trial, "q1")
    trial.site("north").revoke("hips-1", log)
    with pytest.raises(WireError, match="was revoked by this site"):
        use(trial, "q1")
    trial.site("north").accept(trial.permit(), log)
    use(trial, "q2")
    assert verify(trial.folder / "sites/north/logs/audit.jsonl")[0].permits["hips-1"]["used"] == 2


def test_an_acceptance_that_cannot_be_written_down_is_none(trial: Federation) -> None:
    """A file is in the way of the log: the files may be there, and nothing is admitted."""
    log = AuditLog(trial.folder / "permit.key/audit.jsonl", "north")
    with pytest.raises(InputError, match=r"audit.jsonl cannot be written: .*permit.key"):
        trial.site("north").accept(trial.permit(), log)
    with pytest.raises(WireError, match="answers under a permit only"):
        admitted(trial)
