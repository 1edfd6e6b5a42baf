"""A coordinator of secure sums that subtracts totals of different runs, and sites that remember."""

import itertools
import os
import random
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from secure_sites import Wire, federation, identities, site

from fedcluster import Client, Data, MinClusterSize, MinRows, State, Summary, Task
from fedcluster.algorithms import Lloyd
from fedcluster.core.files import write_json
from fedcluster.engines.wire import WireError, unpack
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import fit_of
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import Disclosure
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.coordinator.folder import create, grant
from fedcluster_app.coordinator.runs import content_of, content_without
from fedcluster_app.secure._masks import Words, format_for
from fedcluster_app.secure.cohort import Cohort, Terms, add_cohort, earlier_cohorts
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.secure.site import SecureSite
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_secure
from fedcluster_app.transports.reloading import check_files
from fedcluster_app.trust.identity import identity
from fedcluster_app.trust.permits import public_text
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.remote import Question

TASK = Task(Lloyd(), State.at([[0.0], [4.0]]))
SEVEN = tuple("abcdefg")
Total = Mapping[str, float]


@dataclass
class Run:
    """A run that a coordinator has begun: what each site gave, and who has answered."""

    cohort: tuple[str, ...]
    permit: str = ""
    name: str = field(default_factory=partial(secrets.token_hex, 8))
    sealers: dict[str, Any] = field(default_factory=dict)
    words: dict[str, Words] = field(default_factory=dict)


class World:
    """Sites whose memories are on the disk, and a coordinator that asks them what it likes."""

    def __init__(
        self,
        folder: Path,
        names: Iterable[str],
        terms: Mapping[str, Terms] | None = None,
        *,
        permits: bool = True,
    ) -> None:
        self.folder, self.names = folder, tuple(names)
        self.keys, self.terms = identities(self.names), dict(terms or {})
        self.permitted: Callable[[str], Sequence[str]] | None = tuple if permits else None
        self.values = {name: float(3**i + 7) for i, name in enumerate(self.names)}
        self.sends = dict.fromkeys(self.names, True)
        self.sites: dict[str, SecureSite] = {}
        for name in self.names:
            self.state(name).create()
            self.start(name)

    def state(self, name: str) -> SiteState:
        return SiteState(self.folder / f"{name}.db")

    def start(self, name: str, terms: Terms | None = None) -> None:
        """Start a site anew: of what it knew, only its file is left."""
        keys = {each: key.public_key() for each, key in self.keys.items()}
        self.terms |= {name: terms} if terms else {}
        how = self.terms.get(name), self.state(name), self.permitted
        self.sites[name] = SecureSite(name, self.keys[name], keys, *how)

    def begin(self, cohort: Iterable[str]) -> Run:
        """Let all sites of a cohort give keys. A permit is here the names of its sites."""
        run = Run(tuple(sorted(cohort)))
        run.permit = "".join(run.cohort)
        asked = {"stage": "keys", "cohort": list(run.cohort), "threshold": len(run.cohort)}
        for name in run.cohort:
            header = {"run": run.name, "permit": run.permit}
            reply = self.sites[name].reply(header, asked, sends=self.sends[name])
            run.sealers[name] = reply["sealer"]
        return run

    def agree(self, run: Run, *names: str) -> None:
        asked = {"stage": "shares", "sites": run.cohort, "sealers": run.sealers}
        for name in names or run.cohort:
            self.sites[name].reply({"run": run.name, "permit": run.permit}, asked)

    def answer(self, run: Run, *names: str) -> None:
        """Let sites take the keys of the others and answer a sum."""
        asked = {"stage": "masked", "sum": 1, "sites": run.cohort}
        header = {"run": run.name, "permit": run.permit}
        for name in names or run.cohort:
            self.agree(run, name)
            one = Summary(np.array([[self.values[name]], [1.0]]), np.array([2.0, 1.0]))
            one = one if self.sends[name] else one.keep(np.zeros(2, bool))
            how = {"sends": self.sends[name]}
            run.words[name], _ = self.sites[name].masked(header, asked, "", [TASK], [one], **how)

    def total(self, cohort: Iterable[str]) -> float:
        run = self.begin(cohort)
        self.answer(run)
        return self.read(run)

    def exact(self, cohort: Iterable[str]) -> float:
        return sum(self.values[name] for name in cohort)

    def read(self, run: Run) -> float:
        how = format_for(TASK.state)
        words: Words = reduce(add, run.words.values())
        return float(how.decode(words[: 4 * how.n_words].reshape(4, -1))[0])


def refused(why: str) -> Any:
    return pytest.raises(WireError, match=why)


def refuses(why: str, ask: Callable[..., object], *given: Any, **how: Any) -> None:
    with refused(why):
        ask(*given, **how)


def offered(one: SecureSite, cohort: Iterable[str], threshold: int, permit="", run="") -> Any:
    asked = {"stage": "keys", "cohort": [*cohort], "threshold": threshold}
    return one.reply({"run": run or secrets.token_hex(8), "permit": permit}, asked)["sealer"]


LEFT_OUT = (
    r"secure sums: {0} took part before, and a sum without that site would reveal its own sums: "
    r"ask {0} too"
)
ALONE = (
    r"of these sites, {1} \(with itself\) took part in the same sums as {0} so far, "
    r"where 3 must: let so many join at once, or its owner write allow_alone = \['{0}'\]"
)
SINCE = r"this site has since answered over other sites: begin anew"


@pytest.mark.parametrize("first", ["all", "fewer"])
def test_a_coordinator_alone_cannot_ask_all_sites_and_then_all_but_one(first):
    """Six runs, then subtract: with five sites, this once told the sums of each of them."""
    rng = np.random.default_rng(0)
    data = {name: Data(rng.normal(size=(30 + i, 1))) for i, name in enumerate("abcde")}
    wire, totals = federation(data), {}
    cohorts = [tuple(data), *itertools.combinations(data, 4), *itertools.combinations(data, 3)]
    for cohort in cohorts if first == "all" else cohorts[::-1]:
        missing = next((name for name in data if name not in cohort), None)
        if missing is None:
            [answers] = SecureEngine(wire, cohort).ask([TASK])
            totals[cohort] = answers.total().weights.sum()
            continue
        match = rf"0 of . .* they are over all sites of peers.toml here, and {missing} is missing"
        with pytest.raises(SiteError, match=match):
            SecureEngine(wire, cohort).ask([TASK])
    assert totals == {tuple("abcde"): 160.0}


def test_no_reply_to_another_cohort_holds_anything_of_the_rows():
    data = {name: Data(np.ones((40, 1))) for name in "abcde"}
    wire = federation(data)
    SecureEngine(wire, data).ask([TASK])
    for cohort in [*itertools.combinations("abcde", 3), *itertools.combinations("abcde", 4)]:
        sums: dict[str, Any] = {"cohort": cohort, "threshold": len(cohort), "sites": cohort}
        sums |= {"sum": 1, "sealers": {}, "survivors": cohort}
        for stage in ("keys", "shares", "masked", "unmask"):
            asked = {"run": "another", "exchange": 0, "sums": {**sums, "stage": stage}}
            question = Question(asked, [TASK] if stage == "masked" else []).message
            for name in cohort:
                told, arrays = unpack(wire.sites[name].reply(question))
                assert {"refused", "failed"} & told.keys()
                assert not arrays


def test_a_permit_names_the_cohort_and_no_question_goes_on_under_another(tmp_path):
    world = World(tmp_path, "abcde")
    run, one = world.begin("abcd"), world.sites["a"]
    for cohort, why in (("abcde", "e is not one of them"), ("abc", "d is missing")):
        with refused(rf"they are over all sites of permit 'abcd' here, and {why}"):
            offered(one, cohort, len(cohort), "abcd")
    run.permit = "abcde"
    refuses(r"the run began under another permit", world.answer, run, "a")
    with refused(r"the run began with other sites, or another threshold or permit"):
        offered(one, "abcd", 4, "abcde", run.name)


# Permits for any cohort: the sites' memory alone


def test_a_site_that_took_part_is_not_left_out_even_after_a_restart(tmp_path):
    world = World(tmp_path, SEVEN)
    world.total(SEVEN)
    for cohort in ("abcdef", "abcd", "defg", "abc"):
        refuses(LEFT_OUT.format(min(set(SEVEN) - set(cohort))), world.begin, cohort)
    for name in SEVEN:
        world.start(name)
    refuses(LEFT_OUT.format("g"), world.begin, "abcdef")
    assert world.total(SEVEN) == world.exact(SEVEN)


def test_three_totals_do_not_tell_a_site_that_joins_alone(tmp_path):
    """a, b, c and d, e, f, then all of them with g: g alone can see that it would stand alone."""
    world = World(tmp_path, SEVEN)
    found = world.total("abc") + world.total("def")
    run = world.begin(SEVEN)
    refuses(ALONE.format("g", 1), world.answer, run, "g")
    world.answer(run, *"abcdef")  # nobody else is at risk
    with pytest.raises(WireError):
        world.answer(run, "g")
    assert world.read(run) - found != world.values["g"]
    assert world.total("abc") + world.total("def") == found  # which is nothing new


def test_without_the_rules_a_coordinator_would_find_each_of_these(tmp_path, monkeypatch):
    """The attacks work where sites do not check: so it is the rules that prevent them."""
    monkeypatch.setattr(SecureSite, "_remember", lambda *_: None)
    world = World(tmp_path, SEVEN)
    assert world.total(SEVEN) - world.total("abcdef") == world.values["g"]
    found = world.total("abc") + world.total("def")
    assert world.total(SEVEN) - found == world.values["g"]


def test_keys_that_were_given_before_other_sums_count_no_longer(tmp_path):
    """All give keys while none has a past; then some answer over fewer."""
    world = World(tmp_path, SEVEN)
    run = world.begin(SEVEN)
    world.total("abc")
    world.total("def")
    world.answer(run, "g")  # its own view is of sites without a past
    for name in "abcdef":
        refuses(SINCE, world.answer, run, name)


def test_a_site_that_alone_has_answered_does_not_count_as_one_that_took_part(tmp_path):
    """d answers over a, b, c and d, but these do not; then over a, b, c alone; then all again."""
    world = World(tmp_path, SEVEN)
    world.answer(world.begin("abcd"), "d")
    world.total("abc")
    refuses(ALONE.format("d", 1), world.answer, world.begin("abcd"), "d")


def test_a_past_that_grew_since_the_site_answered_is_seen_in_the_next_run(tmp_path):
    """d answers in a run that the others leave; they have another past when it is asked again."""
    world = World(tmp_path, SEVEN)
    left = world.begin("abcd")
    world.answer(left, "d")
    world.total("abc")
    for name in "abc":
        refuses(SINCE, world.answer, left, name)
    refuses(ALONE.format("d", 1), world.answer, world.begin("abcd"), "d")


def test_enough_sites_may_join_at_once_and_cohorts_may_merge(tmp_path):
    world = World(tmp_path, "abcdefghij")
    world.total("abcd")
    for cohort, alone in (("abcde", "e"), ("abcdef", "f")):
        refuses(ALONE.format(alone, len(cohort) - 4), world.answer, world.begin(cohort), alone)
    for cohort in ("abcdefg", "hij", "abcdefghij", "abcdefg", "hij"):
        assert world.total(cohort) == world.exact(cohort)


def test_a_sum_that_was_interrupted_can_be_asked_again(tmp_path):
    world = World(tmp_path, SEVEN)
    world.answer(world.begin("abcd"), "a", "b")
    world.start("b")
    assert world.total("abcd") == world.exact("abcd")
    world.answer(world.begin(SEVEN), *"aeg")
    assert world.total(SEVEN) == world.exact(SEVEN)


def test_a_site_whose_owner_agrees_may_join_alone(tmp_path):
    world = World(tmp_path, SEVEN, {"g": Terms(allow_alone=["f"])})
    before = world.total("abcdef")
    refuses(ALONE.format("g", 1), world.agree, world.begin(SEVEN), "g")
    world.start("g", Terms(allow_alone=["g"]))
    assert world.total(SEVEN) - before == world.values["g"]


def test_a_site_leaves_only_if_all_others_have_its_owners_word(tmp_path):
    world = World(tmp_path, SEVEN, dict.fromkeys("abcde", Terms(allow_alone=["g"])))
    world.total(SEVEN)
    refuses(LEFT_OUT.format("g"), world.begin, "abcdef")
    world.start("f", Terms(allow_alone=["g"]))
    assert world.total("abcdef") == world.exact("abcdef")
    refuses(LEFT_OUT.format("f"), world.begin, "abcde")


def test_the_past_is_counted_by_whole_cohorts_and_min_sites_is_the_owners(tmp_path):
    world = World(tmp_path, "abcdefgh", {"h": Terms(min_sites=4)})
    world.total("abcd")
    run = world.begin("abcdfgh")
    with refused(r"3 \(with itself\) took part in the same sums as h so far, where 4 must"):
        world.answer(run, "h")
    world.agree(run, "f", "g")
    assert world.total("abcdefgh") == world.exact("abcdefgh")


FEW = (
    r"a secure sum could be over {} sites that have rows to tell of \({} too few\), and the fewest "
    r"here are 3"
)


def test_sites_without_rows_hide_nobody(tmp_path):
    world = World(tmp_path, "abcd")
    world.sends |= dict.fromkeys("bcd", False)
    refuses(FEW.format(1, "b, c and d"), world.answer, world.begin("abcd"), "a")
    world.sends |= dict.fromkeys("bc", True)
    assert world.total("abcd") == world.exact("abc")


def test_a_site_that_gets_rows_alone_or_loses_them_alone_is_not_told(tmp_path):
    """Two totals over the same sites: the second one with the rows of d, or without them."""
    world = World(tmp_path, SEVEN)
    world.sends |= dict.fromkeys("defg", False)
    world.total(SEVEN)
    world.sends["d"] = True
    refuses(ALONE.format("d", 1), world.answer, world.begin(SEVEN), "d")
    world.sends |= dict.fromkeys("ef", True)
    world.total(SEVEN)
    world.sends["d"] = False
    what = r"d took part before, .*: wait until d has enough rows, or, if its owner agrees"
    for name in SEVEN:
        refuses(what, world.answer, world.begin(SEVEN), name)
    world.sends["d"] = True
    assert world.total(SEVEN) == world.exact("abcdef")


@pytest.mark.parametrize("signed", [True, False])
def test_a_site_answers_only_with_the_rows_that_it_signed_for(signed, tmp_path):
    world = World(tmp_path, "abcd")
    world.sends["d"] = signed
    run = world.begin("abcd")
    world.sends["d"] = not signed
    refuses(r"this site has other rows than when the run began: begin anew", world.answer, run, "d")


def test_grouped_sites_sign_for_their_rows():
    data = {"east": 300, "north": 19, "south": 19, "west": 300}
    rows = {name: Data(np.arange(n, dtype=float)[:, None]) for name, n in data.items()}
    wire = federation(rows, filters=Disclosure(groups=Groups()))
    with pytest.raises(SiteError, match=FEW.format(2, "north and south")):
        SecureEngine(wire, data).ask([TASK])
    assert not any(unpack(reply)[1] for _, _, reply in wire.log)


def test_limits_sign_for_rows_as_they_count_them():
    rows = Data(np.zeros((30, 1)), groups=np.repeat(np.arange(6), 5))
    for filters, sends in (((MinRows(7),), False), ((MinRows(6),), True), ((), True)):
        assert Client("a", rows, filters).introduce(sends=True).sends is sends
    for p, sends in ((30, True), (31, False)):
        client = Client("a", replace(rows, groups=None), (MinClusterSize(p),))
        assert client.introduce(sends=True).sends is sends


def smallest(totals: Iterable[Sequence[str]], honest: Iterable[str]) -> int:
    """Return the fewest honest sites that a combination of totals is over.

    A combination is the same for all sites that are in the same totals.
    """
    totals, honest = list(totals), list(honest)
    alike = Counter(tuple(name in total for total in totals) for name in honest)
    return min((n for seen, n in alike.items() if any(seen)), default=len(honest))


class Adversary:
    """A coordinator that begins, leaves and goes on with runs, restarts sites, and adds up."""

    def __init__(self, world: World, seed: int, colluder: str = "", changes: float = 0.0) -> None:
        self.changes = changes
        self.world, self.rng, self.colluder = world, random.Random(seed), colluder
        self.honest = [name for name in world.names if name != colluder]
        self.runs: list[Run] = []
        self.found: set[tuple[str, ...]] = set()
        self.cohorts = self.entangled()

    def entangled(self) -> list[tuple[str, ...]]:
        names, found = set(self.world.names), [set(self.world.names)]
        while len(found) < 5:
            one = set(self.rng.sample(sorted(names), self.rng.randrange(3, len(names) + 1)))
            other = self.rng.choice(found)
            found.append(self.rng.choice([one, one & other, one | other, other - one, one ^ other]))
        return [tuple(sorted(each)) for each in found if len(each) >= 3]

    def step(self) -> None:
        act = self.rng.random()
        with suppress(WireError):
            if not self.runs or act < 0.3:
                self.begin()
            elif act < 0.33:
                self.world.start(self.rng.choice(self.world.names))
            elif act < 0.33 + self.changes:
                some = self.rng.sample(self.world.names, self.rng.choice([1, 1, 2, 3]))
                self.world.sends |= {name: not self.world.sends[name] for name in some}
            else:
                self.go_on()

    def begin(self) -> None:
        run = self.world.begin(self.rng.choice(self.cohorts))
        if self.colluder in run.cohort:  # it signs any past that it likes
            some = [each for each in self.cohorts if self.rng.random() < 0.3]
            past = [sorted({*each, self.colluder}) for each in some]
            if self.rng.random() < 0.7:
                past = [p for p in run.sealers[run.cohort[-1]][2] if self.colluder in p]
            cohort = Cohort(run.name, run.cohort, len(run.cohort))
            key = run.sealers[self.colluder][0]
            said = cohort.signed(self.colluder, key, past, sends=True)
            signature = self.world.keys[self.colluder].sign(said)
            run.sealers[self.colluder] = [key, signature.hex(), past, True]
        self.runs = [*self.runs, run][-6:]

    def go_on(self) -> None:
        run = self.rng.choice(self.runs)
        left = [name for name in run.cohort if name not in run.words and name != self.colluder]
        self.rng.shuffle(left)
        for name in left if self.rng.random() < 0.7 else left[:1]:
            with suppress(WireError):
                self.world.answer(run, name)
        if {*run.words} >= {*run.cohort} - {self.colluder}:
            self.found.add(tuple(name for name in run.cohort if run.sealers[name][3]))


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "changes"), [(7, 0.1), (6, 0), (4, 0), (7, 0)])
@pytest.mark.parametrize("colluders", [0, 1])
def test_all_totals_together_tell_of_at_least_so_many_sites(n, changes, colluders, tmp_path):
    """Random runs in any order and interleaving, with permits for any cohort.

    Sites may get rows and lose them meanwhile.
    """
    found = []
    for seed in range(10):
        (folder := tmp_path / str(seed)).mkdir()
        adversary = Adversary(World(folder, SEVEN[:n]), 100 * n + seed, "a" * colluders, changes)
        for _ in range(30):
            adversary.step()
        assert smallest(adversary.found, adversary.honest) >= 3 - colluders
        found.append(len(adversary.found))
    assert sum(found) >= 5
    assert changes or colluders or n < 6 or max(found) > 1  # cohorts did grow


def test_a_site_with_an_old_backup_of_its_memory_is_reminded_by_the_others(tmp_path):
    world = World(tmp_path, SEVEN)
    world.total("abc")
    old = {name: (tmp_path / f"{name}.db").read_bytes() for name in "ab"}
    world.total(SEVEN)
    for name, content in old.items():
        (tmp_path / f"{name}.db").write_bytes(content)
        world.start(name)
    refuses(LEFT_OUT.format("d"), world.begin, "abcefg")
    assert world.total("abc") == world.exact("abc")  # which is known
    assert world.total(SEVEN) == world.exact(SEVEN)


def test_a_site_that_has_lost_its_memory_does_not_stand_alone(tmp_path):
    world = World(tmp_path, SEVEN)
    world.total("abcd")
    (tmp_path / "d.db").unlink()
    world.state("d").create()
    world.start("d")
    world.total("defg")  # it has forgotten, and these have no past
    refuses(LEFT_OUT.format("e"), world.begin, "abcd")
    refuses(ALONE.format("d", 1), world.answer, world.begin(SEVEN), "d")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "lost": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "something else": lambda path: path.write_bytes(b"no such file" * 1000),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:5000]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_memory_that_is_lost_or_emptied_while_the_site_runs_ends_its_answers(damage, tmp_path):
    """Also between the keys and the first sum; the coordinator learns that it failed, no more."""
    keys, state, data = identities("abc"), SiteState(tmp_path / "b.db"), Data(np.ones((40, 1)))
    state.create()
    states = {"b": state}
    wire = Wire({name: site(name, data, keys, state=states.get(name)) for name in "abc"})
    SecureEngine(wire, "abc").ask([TASK])
    engine = SecureEngine(wire, "abc")
    vars(SecureEngine)["_begin"](engine, {})
    DAMAGES[damage](tmp_path / "b.db")
    for each in (engine, SecureEngine(wire, "abc")):
        wire.log.clear()
        with pytest.raises(SiteError, match=r"2 of 3 sites .*b: failed, see its log"):
            each.ask([TASK])
        [told] = [unpack(reply) for name, _, reply in wire.log if name == "b"]
        assert told[0]["failed"] == "InputError"
        assert not told[1]
        assert str(tmp_path) not in str(told)


def test_two_programs_of_a_site_have_one_memory(tmp_path):
    """Two federations that share a, b and c, each with a site file in the same folder."""
    one, other = (World(tmp_path, names, permits=False) for names in ("abcd", "abce"))
    assert one.total("abcd") == one.exact("abcd")
    refuses(LEFT_OUT.format("d"), other.begin, "abce")
    assert one.total("abcd") == one.exact("abcd")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of site a, which knows b and c."""
    lines = [f"{x!r},{y!r}" for x, y in np.random.default_rng(0).normal(size=(50, 2)).tolist()]
    (tmp_path / "rows.csv").write_text("\n".join(["x0,x1", *lines, ""]))
    own = identity(tmp_path, make=True).public_key()
    keys = {"a": own} | {n: k.public_key() for n, k in identities("bcdef").items()}
    lines = [f'{name} = "{public_text(keys[name])}"' for name in "abcdef"]
    (tmp_path / "peers.toml").write_text("\n".join(lines[:3]))
    (tmp_path / "more.toml").write_text("\n".join(lines))
    return tmp_path


def secure_site(home: Path, lines: str = "") -> SecureSite:
    path = home / "site.toml"
    path.write_text(
        'name = "a"\n[source]\npath = "rows.csv"\n[federation]\ncoordinator = "127.0.0.1:1"\n'
        f'certificate = "system"\nkey = "site.toml"\nsecure = true\n{lines}'
    )
    found = SiteFile.load(path)
    one = site_secure(found, Membership.from_site_file(found))
    assert one is not None
    return one


def test_sites_may_drop_out_only_if_the_owner_allows_it(home):
    shutil.copy(home / "more.toml", home / "peers.toml")
    match = r"no site may drop out: run without --quorum, or let .* write allow_dropouts = true"
    for lines in ("", "allow_dropouts = false"):
        refuses(match, offered, secure_site(home, lines), "abcdef", 5)
    assert offered(secure_site(home, "allow_dropouts = true"), "abcdef", 5)
    assert offered(secure_site(home), "abcdef", 6)


def test_peers_that_the_owner_adds_are_part_of_each_sum(home):
    assert offered(secure_site(home), "abc", 3)
    shutil.copy(home / "more.toml", home / "peers.toml")
    with refused("over all sites of peers.toml here, and d is missing"):
        offered(secure_site(home), "abc", 3)
    add_cohort(SiteState(home / STATE_FILE), tuple("abc"), len)
    assert offered(secure_site(home), "abcdef", 6)[2] == [["a", "b", "c"]]


def test_a_peer_that_the_owner_removes_must_have_agreed(home):
    add_cohort(SiteState(home / STATE_FILE), tuple("abcz"), len)
    refuses(LEFT_OUT.format("z"), offered, secure_site(home), "abc", 3)
    assert offered(secure_site(home, 'allow_alone = ["z"]'), "abc", 3)


def test_a_memory_is_made_with_the_key_and_never_again(home):
    state = home / STATE_FILE
    assert earlier_cohorts(SiteState(state)) == frozenset()
    identity(home, make=True)
    state.unlink()
    identity(home, make=True)
    missing = r"site.db is missing; it says .* secure sums .*, or remove identity.key"
    with pytest.raises(InputError, match=missing):
        secure_site(home)
    state.write_bytes(b"")
    with pytest.raises(InputError, match=r"site.db cannot be used: it is empty"):
        secure_site(home)
    state.unlink()
    (home / "identity.key").unlink()
    identity(home, make=True)
    with pytest.raises(InputError, match="the key of a is not that of this site"):
        secure_site(home)


def test_a_memory_is_for_the_sites_user_alone(tmp_path):
    before = os.umask(0)
    try:
        identity(tmp_path, make=True)
    finally:
        os.umask(before)
    assert (tmp_path / STATE_FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / STATE_FILE).chmod(0o620)
    with pytest.raises(InputError, match=r"other users of this machine may write .*site.db"):
        check_files(tmp_path / "site.toml", Membership("127.0.0.1:1"))


@pytest.mark.parametrize(
    "line", ["allow_alone = true", 'allow_alone = "b"', "allow_dropouts = 1", 'allow_dropouts = ""']
)
def test_what_the_site_file_cannot_mean_is_refused(line, home):
    with pytest.raises(InputError, match=rf"{line.split()[0]} must be (a list|true or false), not"):
        secure_site(home, line)


def test_a_site_that_allows_no_dropouts_is_in_each_total_whatever_the_others_allow():
    """b has not agreed: without its keys the others answer nothing, so it cannot be left out."""
    names, data = tuple("abcde"), Data(np.ones((40, 1)))
    keys, terms = identities(names), Terms(allow_dropouts=True)
    sites = {name: site(name, data, keys, terms=terms if name != "b" else None) for name in names}
    with pytest.raises(SiteError, match=r"4 of 5 .* needed \(b: .* no site may drop out: run with"):
        SecureEngine(Wire(sites), names, quorum=4).ask([TASK])

    def say(name: str, stage: str, exchange: int, **sums: Any) -> tuple[Any, Any]:
        asked = {"run": "r", "exchange": exchange, "sums": {"stage": stage, **sums}}
        question = Question(asked, [TASK] if stage == "masked" else []).message
        return unpack(sites[name].reply(question))

    keys_for = {"cohort": names, "threshold": 4}
    sealers = {name: say(name, "keys", 0, **keys_for)[0]["sums"]["sealer"] for name in "acde"}
    for stage, among in (("shares", [*"acde"]), ("masked", [*"acde"]), ("shares", names)):
        told, arrays = say("a", stage, 1, sites=among, sealers=sealers, sum=1, sealed={})
        assert "refused" in told
        assert "masked" not in arrays


def test_a_run_of_too_few_sites_or_with_a_small_quorum_is_refused_before_it_begins(tmp_path):
    for names, quorum, why in (
        ("ab", None, "could be over 2 sites, and the fewest here are 3"),
        ("abcd", 2, "over 4 sites where 2 of 4 must be left: more than half"),
    ):
        trial = create(tmp_path / names, [*names], "127.0.0.1:1")
        with pytest.raises(InputError, match=f"--secure: a secure sum {why}"):
            content_of(trial, tmp_path, fit_of(2), RunOptions(Path(), secure=True, quorum=quorum))


def test_a_run_is_over_the_sites_of_its_permit_or_all(tmp_path):
    trial = create(tmp_path / "trial", [*"abcd"], "127.0.0.1:1")
    days = {"start": date(2026, 1, 1), "end": date(2036, 1, 1), "rounds": 9}
    terms = {"purpose": "x", "columns": ("x",), "labels": False, "steps": ("Lloyd",), **days}
    grant(trial, id="few", sites=["c", "a", "b"], **terms)
    asked = ((True, "few", "abc"), (False, "few", "abcd"), (True, None, "abcd"))
    for secure, permit, sites in asked:
        options = RunOptions(Path(), secure=secure, permit=permit)
        assert content_of(trial, tmp_path, fit_of(2), options)["sites"] == [*sites]


def test_a_site_of_a_run_with_secure_sums_is_not_forgotten(tmp_path):
    trial = create(tmp_path / "trial", [*"abcd"], "127.0.0.1:1")
    for secure in (True, False):
        content = content_of(trial, tmp_path, fit_of(2), RunOptions(Path(), secure=secure))
        before = trial.file("runs", "before")
        (before / "records").mkdir(parents=True, exist_ok=True)
        write_json(before / "job.json", content)
        if secure:
            with pytest.raises(InputError, match="'before' had secure sums: a run without 'b'"):
                content_without(trial, "before", "b", tmp_path)
        else:
            assert content_without(trial, "before", "b", tmp_path)["sites"] == [*"acd"]
