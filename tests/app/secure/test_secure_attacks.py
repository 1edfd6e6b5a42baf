"""A coordinator that lies to sites of secure sums, and a site that lies to the coordinator."""

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from secure_sites import federation, identities, site

from fedcluster.algorithms import FKM, Lloyd, SphericalKMeans
from fedcluster.core import Column, Data, State, Task
from fedcluster.engines.client import Client
from fedcluster.engines.wire import PROTOCOL, pack, unpack
from fedcluster.errors import InputError, SiteError
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.preprocessing.site_effects import SiteEffects
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster_app.coordinator.folder import create
from fedcluster_app.secure import _masks as masks
from fedcluster_app.secure.cohort import Cohort, Terms, earlier_cohorts
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.transports.flower.node import take_part
from fedcluster_app.trust.site_state import SiteState
from fedcluster_app.wire.remote import Question
from fedcluster_app.wire.responder import Responder

STATE = State.at([[0.0, 0.0], [5.0, 5.0]])
LLOYD = [Task(Lloyd(), STATE)]
COLUMNS = ["x0", "x1"]
NAMES = ("east", "north", "south", "west")


def rows(seed=0, n=40):
    return Data(np.random.default_rng(seed).normal(size=(n, 2)))


class Liar:
    """A coordinator that asks sites whatever it likes."""

    def __init__(self, names=NAMES, threshold=None, run=None, sites=None, keys=None):
        self.keys = keys or identities(names)
        terms, each = Terms(allow_dropouts=threshold is not None), enumerate(names)
        self.sites = sites or {n: site(n, rows(i), self.keys, terms=terms) for i, n in each}
        self.run, self.names, self.exchange = run or secrets.token_hex(8), list(names), 0
        self.threshold = threshold or len(names)
        self.offers, self.sealers = {}, {}

    def again(self, run=None):
        """Another run of the same sites, or one of the same name."""
        return Liar(self.names, run=run, sites=self.sites, keys=self.keys)

    def ask(self, name, sums, tasks=(), **header):
        """Return what a site says of secure sums and its arrays; its refusal is an error."""
        asked = {"run": self.run, "exchange": self.exchange, **header}
        asked |= {} if sums is None else {"sums": sums}
        self.exchange += 1
        told, arrays = unpack(self.sites[name].reply(Question(asked, tasks).message))
        if "refused" in told or "failed" in told:
            raise PermissionError(told.get("refused", told.get("failed")))
        return told.get("sums"), arrays

    def begin(self, names=None, **changed):
        self.give_keys(names, **changed)
        told = {name: self.shares(name) for name in names or self.names}
        if self.threshold < len(self.names):
            self.offers = {name: each["next"] for name, each in told.items()}
        return self

    def give_keys(self, names=None, **changed):
        terms = {"stage": "keys", "cohort": self.names, "threshold": self.threshold, **changed}
        for name in names or self.names:
            self.sealers[name] = self.ask(name, terms)[0]["sealer"]
        return self

    def shares(self, name, **changed):
        sealers = {**self.sealers, **changed}
        return self.ask(name, {"stage": "shares", "sites": self.names, "sealers": sealers})[0]

    def question(self, name, number=1, sites=None, **changed):
        asked = {"stage": "masked", "sum": number, "sites": sites or self.names}
        if self.offers:
            asked["sealed"] = {of: offer["sealed"][name] for of, offer in self.offers.items()}
        return {**asked, **changed}

    def masked(self, name, number=1, tasks=LLOYD, columns=COLUMNS, **changed):
        question = self.question(name, number, **changed)
        said, arrays = self.ask(name, question, tasks, columns=columns)
        return said, arrays["masked"].view(np.uint64)

    def words(self):
        return {name: self.masked(name)[1] for name in self.names}

    def total(self, words, number=1):
        total = reduce(add, words.values())
        if self.offers:
            told = {name: self.unmask(name, self.names, number) for name in self.names}
            shares = {n: {of: bytes.fromhex(s) for of, s in t.items()} for n, t in told.items()}
            cohort = Cohort(self.run, tuple(self.names), self.threshold)
            keys = self.publics()
            total = total - masks.remaining(cohort, "", keys, self.names, shares, len(total))
        return masks.format_for(STATE).decode(total[: -masks.SIZE.n_words].reshape(8, -1))

    def publics(self):
        return {name: bytes.fromhex(offer["key"]) for name, offer in self.offers.items()}

    def unmask(self, name, survivors, number=1):
        asked = {"stage": "unmask", "sum": number, "survivors": list(survivors)}
        return self.ask(name, asked)[0]["shares"]


def five():
    return Liar(FIVE, threshold=4).begin()


def refused(why: str) -> Any:
    return pytest.raises(PermissionError, match=why)


def refuses(why: str, ask: Callable[..., object], *given: Any, **how: Any) -> None:
    with refused(why):
        ask(*given, **how)


def test_a_site_of_secure_sums_answers_no_task_in_the_clear():
    liar = Liar().begin()
    given: list[Any] = [None, {}, {"stage": "keys"}, {"stage": "unmask"}, "masked", 7, []]
    for sums in (*given, {"stage": []}):
        refuses(r"secure sums only", liar.ask, "north", sums, LLOYD)


def test_a_site_without_secure_sums_gives_no_keys():
    plain = site("north", rows(), None)
    message = pack({"protocol": PROTOCOL, "run": "r", "exchange": 0, "sums": {}, "tasks": []}, {})
    assert "write secure = true" in unpack(plain.reply(message))[0]["refused"]


def test_answers_that_do_not_add_up_are_not_masked_but_refused():
    with refused(r"FKM needs more than sums over all sites"):
        Liar().begin().masked("north", tasks=[Task(FKM(2), State())])
    how = Preprocessor((NumericColumn("x0"),), effects=SiteEffects(((0.0,),), ((1.0,),), (1.0,)))
    with refused(r"adjusting by site does not go with secure sums"):
        Liar().begin().masked("north", tasks=[Task(Lloyd(), STATE, preprocessor=how)])


NOT_ALL = r"not named in order"
TERMS: list[tuple[Any, Any, str]] = [
    (["north", "south"], 2, r"could be over 2 sites, and the fewest here are 3"),
    (["aaron", *NAMES], 5, r"aaron is not among the sites that are known here"),
    (["north"], 1, r"could be over 1 sites"),
    *((list(NAMES), threshold, r"more than half") for threshold in (2, 1, 0, -4)),
    (list(NAMES), 9, r"over 4 sites where 9"),
    (["east", "south", "west"], 3, r"north is not among the sites that take part"),
    (["north", "east", "south"], 3, NOT_ALL),
    (["north", "north", "south", "west"], 4, NOT_ALL),
    ("east", 4, NOT_ALL),
    *((list(NAMES), threshold, NOT_ALL) for threshold in (4.0, True)),
]


@pytest.mark.parametrize(("cohort", "threshold", "match"), TERMS)
def test_terms_that_tell_of_few_or_unknown_sites_are_refused(cohort, threshold, match):
    refuses(match, Liar().begin, ["north"], cohort=cohort, threshold=threshold)


def test_terms_of_a_run_do_not_change():
    liar = Liar().begin()
    with refused(r"the run began with other sites, or another threshold"):
        liar.begin(cohort=["north", "south", "west"], names=["north"], threshold=3)


def test_keys_are_those_of_the_sites_and_of_this_run():
    liar = Liar().give_keys()
    other = liar.again().begin()
    own, south = masks.Encryptor().public.hex(), liar.sealers["south"]
    for sealer in (
        [own, "00" * 64, [], True],
        [own, *south[1:]],
        [*south[:2], [list(NAMES[:3])], True],  # another past than it has signed
        [*south[:3], False],  # or without rows, which it has not signed
        [*south[:3], 1],
        other.sealers["south"],  # of another run
        liar.sealers["east"],  # of another site
    ):
        with refused(r"the key of south is not signed by the south that is known here"):
            liar.shares("north", south=sealer)
    odd = ["xy", "z", [], True], None, 3, [own, 4, 5, True], [own, "00", 6, True]
    for sealer in ([], [own], ["xy", "z"], [own, "00" * 64, []], *odd):
        refuses(r"secure sums", liar.shares, "north", south=sealer)
    cohort = Cohort(liar.run, NAMES, 4)
    pasts: list[Any] = [[["b", "a"]], ["ab"], [[1]], [["a", "a"]], 3, None, [None]]
    for past in pasts:
        said = liar.keys["south"].sign(cohort.signed("south", own, past, sends=True)).hex()
        refuses(r"secure sums", liar.shares, "north", south=[own, said, past, True])
    said = liar.keys["north"].sign(cohort.signed("north", own, [], sends=True)).hex()
    with refused(r"the key named for this site is not the key that it sent"):
        liar.shares("north", north=[own, said, [], True])
    refuses(r"the keys of the others have not been given here", liar.masked, "north")
    liar.begin(["north"]).shares("north", south=other.sealers["south"])  # the first ones count
    assert liar.begin().total(liar.words())[6:].sum() == 160.0


def test_a_sum_is_answered_once_and_numbers_are_not_skipped():
    liar = Liar().begin()
    _, first = liar.masked("north")
    for number in (1, 0, 3, -1, 2.0, True, "2", None):
        with refused(r"secure sums"):
            liar.masked("north", number, tasks=[Task(Lloyd(), State.at([[9.0, 9.0]]))])
    _, second = liar.masked("north", 2)
    assert (first != second).all()


def test_the_same_question_has_the_same_answer_and_another_one_other_masks():
    liar = Liar().begin()
    asked = {"run": liar.run, "exchange": 0, "sums": liar.question("north")}
    message = Question(asked, LLOYD).message
    assert len({liar.sites["north"].reply(message) for _ in range(3)}) == 1
    other = liar.again(liar.run)
    other.sites = {**liar.sites, "north": site("north", rows(1), liar.keys)}  # after a restart
    other.sealers = dict(liar.sealers)
    refuses(r"no keys of the run, as it was started anew", other.masked, "north")
    other.begin(["north"])
    assert other.sealers["north"] != liar.sealers["north"]


def test_masks_of_one_run_say_nothing_of_another():
    liar = Liar().begin()
    first = liar.masked("north")[1]
    assert (first != liar.again().begin().masked("north")[1]).all()


PREPARED = [
    *(
        Preprocessor(tuple(NumericColumn(name, **how) for name in COLUMNS), missing=missing)
        for how in ({}, {"log": True}, {"log": True, "bounds": (-5.0, 9.0)}, {"fill": 0.0})
        for missing in ("error", "drop")
    ),
    Preprocessor(tuple(NumericColumn(name, fill=0.0) for name in COLUMNS), unit=True),
]
ROW: dict[str, list[float]] = {
    "negative": [-3.0, 1.0],
    "lacking a value": [np.nan, 1.0],
    "lacking all": [np.nan, np.nan],
    "zero": [0.0, 0.0],
    "far": [1e40, 1.0],
}


@pytest.mark.parametrize("protection", [None, Groups(5)], ids=["limits", "groups"])
@pytest.mark.parametrize("what", ROW)
def test_no_preparation_fails_at_a_single_row(what, protection):
    """A site that fails tells what no sum would: that it has a row which cannot be prepared so."""
    without = np.abs(np.random.default_rng(3).normal(size=(60, 2))) + 1.0
    having = np.vstack([without, ROW[what]])
    filters = () if protection else (MinClusterSize(5), MinRows(2))
    said: list[list[dict[str, str]]] = []
    for X in (without, having):
        client = Client("north", Data(X, columns=(Column("x0"), Column("x1"))), filters, protection)
        north = Responder(client, columns=COLUMNS, choose=lambda c, raw=False: client, **KNOWN)  # noqa: B023
        said.append([])
        for number, how in enumerate(PREPARED):
            asked = {"run": str(number), "exchange": 0, "raw": True, "columns": COLUMNS}
            tasks = [replace(task, preprocessor=how) for task in LLOYD]
            told, _ = unpack(north.reply(Question(asked, tasks).message))
            said[-1].append({key: told[key] for key in ("refused", "failed") if key in told})
    assert said == [[{}] * len(PREPARED)] * 2


def test_a_kill_between_the_memory_and_the_answer_costs_an_answer_and_nothing_else(tmp_path):
    """The cohort is on the disk before a word leaves; the next run is answered."""

    def killed(*_given: object) -> None:
        raise KeyboardInterrupt

    state = SiteState(tmp_path / "north.db")
    state.create()
    liar = Liar()
    liar.sites["north"] = site("north", rows(1), liar.keys, state=state)
    liar.begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedcluster_app.secure.site.pair_mask", killed)
        with pytest.raises(KeyboardInterrupt):
            liar.masked("north")
    assert earlier_cohorts(state) == {NAMES}
    liar.sites["north"] = site("north", rows(1), liar.keys, state=state)
    again = liar.again().begin()
    assert again.total(again.words())[6:].sum() == 160


def test_a_run_that_was_driven_out_or_restarted_gives_no_second_word_under_one_mask():
    """A coordinator begins so many runs that a site forgets the first, and asks that one again."""
    liar = Liar().begin()
    _, first = liar.masked("north")
    for _ in range(9):
        liar.again().give_keys(["north"])
    liar.exchange = 9
    refuses("no keys of the run", liar.masked, "north", 2)
    again = liar.again(liar.run)
    with refused("exchange must rise within a run; if the site restarted, resume the run"):
        again.give_keys(["north"])
    again.exchange = 99
    again.give_keys(["north"])
    assert again.sealers["north"] != liar.sealers["north"]
    again.sealers = {**liar.sealers, **again.sealers}
    again.shares("north")
    _, anew = again.masked("north")
    liar.exchange = 999
    assert (first != anew).all()  # so their difference is no difference of sums
    words = {name: liar.masked(name)[1] for name in NAMES if name != "north"} | {"north": anew}
    assert np.abs(liar.total(words)).min() > 1e3


OTHER: dict[str, dict[str, Any]] = {
    "rows to other centres": {"tasks": [Task(Lloyd(), State.at([[0.0, 0.0], [0.5, 0.5]]))]},
    "other columns": {"columns": ["x1", "x0"]},
    "another step": {"tasks": [Task(SphericalKMeans(), STATE)]},
    "another seed": {"tasks": [Task(Lloyd(), STATE, seed=7)]},
    "another round": {"tasks": [Task(Lloyd(), replace(STATE, round=3))]},
}


@pytest.mark.parametrize("threshold", [None, 4])
@pytest.mark.parametrize("other", OTHER)
def test_masks_cancel_only_if_all_sites_were_asked_the_same(other, threshold):
    """Asked about other centres, one site would change the total by what it has in a cluster."""
    names = FIVE if threshold else NAMES
    liar = Liar(names, threshold=threshold).begin()
    totals = []
    for number, asked in enumerate(({}, OTHER[other], {}), 1):
        hows = {name: asked if name == names[0] else {} for name in names}
        told = {name: liar.masked(name, number, **how) for name, how in hows.items()}
        totals.append(liar.total({name: words for name, (_, words) in told.items()}, number))
        liar.offers = {n: said["next"] for n, (said, _) in told.items()} if threshold else {}
    np.testing.assert_array_equal(totals[0], totals[2])
    assert totals[0][6:].sum() == 40 * len(names)
    assert np.abs(totals[1] - totals[0]).min() > 1e3  # as if it were random


FIVE = ("a", "b", "c", "d", "e")


def test_a_site_is_said_to_be_in_or_out_and_not_both():
    liar = five()
    liar.words()
    told = liar.unmask("a", "abcd")
    assert told == liar.unmask("a", "abcd")
    for survivors in (FIVE, "abce", "abde"):
        refuses(r"other sites were said to have answered", liar.unmask, "a", survivors)


def test_one_site_is_not_found_however_the_others_are_lied_to():
    """Half of the sites are told that a is in, the others that it is out: neither secret is whole.

    In its strongest form: the coordinator has all words and all shares that any site gives.
    """
    liar = five()
    masked = liar.words()["a"]
    own: dict[int, bytes] = {}
    key: dict[int, bytes] = {}
    for i, name in enumerate(FIVE):
        survivors = FIVE if i < 3 else FIVE[1:]
        share = bytes.fromhex(liar.unmask(name, survivors)["a"])
        (own if "a" in survivors else key)[i] = share
    assert (len(own), len(key)) == (3, 2)
    for secret in (masks.combined(own), masks.combined(key)):
        left = (masked - masks.own_mask(secret, len(masked))).view(np.int64)
        assert np.abs(left / 2.0**62).max() > 0.5  # still masked
    assert masks.SumSecrets(masks.combined(key)).public != liar.publics()["a"]


def test_with_all_shares_of_both_kinds_it_would_be_found():
    """The attack above works where sites give both: so it is their rule that prevents it."""
    liar = five()
    masked = liar.words()["a"]
    told: dict[bool, dict[int, bytes]] = {True: {}, False: {}}
    for i, name in enumerate(FIVE):
        for is_in in told:  # a site that forgets what it said before
            known = vars(liar.sites[name])["_secure"]
            vars(known)["_runs"][liar.run].survivors = ()
            survivors = FIVE if is_in or name == "a" else FIVE[1:]
            told[is_in][i] = bytes.fromhex(liar.unmask(name, survivors)["a"])
    del told[False][0]
    own, key = masks.combined(told[True]), masks.combined(told[False])
    pairs = masks.agreements("a", masks.SumSecrets(key).private, liar.publics())
    n, asked = len(masked), Question({"run": liar.run, "columns": COLUMNS}, LLOYD).content
    mask = masks.own_mask(own, n) + masks.pair_mask("a", pairs, f"{liar.run} 1 {asked}", n)
    answer = Lloyd().client_step(STATE, rows(0), np.random.default_rng(0))
    found = masks.format_for(STATE).decode((masked - mask)[: -masks.SIZE.n_words].reshape(8, -1))
    np.testing.assert_allclose(found, np.append(answer.sums.ravel(), answer.weights))


def test_a_site_that_has_left_stays_out_and_too_few_are_no_sum():
    liar, four = five(), [*"abcd"]
    offers = {name: liar.masked(name, sites=four)[0]["next"] for name in four}
    for name in four:
        liar.unmask(name, four)
    liar.offers = {**offers, "e": liar.offers["e"]}
    with refused(r"a site that has left the run, or was never in it"):
        liar.masked("a", 2, sites=list(FIVE))
    refuses(r"over 3 sites where 4 of 5 must be left", liar.masked, "a", 2, sites=four[:3])
    liar.masked("a", 2, sites=four)
    refuses(r"over 3 sites where 4", liar.unmask, "a", four[:3], 2)


@pytest.mark.parametrize("sites", [["a"] * 5, ["a", "a", "b", "c"], ["a", "b", "b", "b", "c"]])
def test_sites_that_are_named_twice_do_not_make_a_sum_of_enough(sites):
    """Alone among copies of itself, a site would have no mask but its own, which others tell."""
    liar = five()
    refuses(r"with sites that gave no keys, or twice", liar.masked, "a", sites=sites)
    liar.words()
    refuses(r"with sites that gave no keys, or twice", liar.unmask, "a", sites)


def test_shares_are_told_of_the_last_sum_only_and_by_sites_that_answered():
    liar, whole = five(), Liar().begin()
    refuses(r"nothing to recover", liar.unmask, "a", FIVE)
    liar.masked("a")
    for survivors, number, why in (
        ("bcde", 1, r"not the sites that were asked"),
        ("abcdef", 1, r"not the sites that were asked"),
        ("abc", 1, r"where 4 of 5 must be left"),
        (FIVE, 2, r"nothing to recover"),
    ):
        refuses(why, liar.unmask, "a", survivors, number)
    whole.masked("north")
    refuses(r"nothing to recover", whole.unmask, "north", NAMES)


def test_shares_that_were_changed_or_moved_are_not_opened():
    liar = five()
    sealed = liar.question("a")["sealed"]
    flipped = bytearray(bytes.fromhex(sealed["b"]))
    flipped[3] ^= 1
    for part in (flipped.hex(), sealed["c"], liar.offers["b"]["sealed"]["c"], "", "00" * 80):
        with refused(r"a share was changed, or belongs to another site"):
            liar.masked("a", sealed={**sealed, "b": part})
    liar.masked("a")  # nothing was used up


def test_a_question_that_is_not_whole_is_refused_in_one_line():
    liar = five()
    questions: list[dict[str, Any]] = [
        {"stage": "shares"},
        {"stage": "unmask"},
        {"stage": "no such"},
        {"stage": "unmask", "sum": 0, "survivors": None},
        {"stage": "keys", "cohort": [[]], "threshold": None},
    ]
    for asked in questions:
        refuses(r"secure sums", liar.ask, "a", asked)
    changes: list[dict[str, Any]] = [{"sites": 3}, {"sealed": None}, {"sealed": {}}, {"sum": {}}]
    for changed in changes:
        refuses(r"secure sums", liar.masked, "a", **changed)
    with refused(r"secure sums"):
        liar.ask("a", {"stage": "unmask", "sum": 1, "survivors": ["a"]}, run="another")


def lying(change, quorum=None):
    """An engine of five sites, one of which changes what it says of secure sums."""
    wire = federation({name: rows(i) for i, name in enumerate(FIVE)}, dropouts=quorum is not None)
    honest = wire.sites["c"].reply

    def reply(question):
        header, arrays = unpack(honest(question))
        if "sums" in header:
            header["sums"] = json.loads(json.dumps(header["sums"]))
            change(header["sums"], arrays)
        return pack({key: header[key] for key in header if key != "arrays"}, arrays)

    wire.sites["c"].reply = reply  # type: ignore[method-assign]
    return SecureEngine(wire, FIVE, quorum=quorum)


def random_words(said, arrays):
    rng = np.random.default_rng(0)
    for name, words in arrays.items():
        arrays[name] = rng.integers(0, 1 << 63, len(words)).view(np.float64)


CHANGES = {
    "no keys": lambda said, arrays: said.pop("sealer", None),
    "random words": random_words,
    "no shares": lambda said, arrays: said.pop("next", None),
    "no shapes": lambda said, arrays: said.pop("shapes", None),
    "other shapes": lambda said, arrays: said.update(shapes=[[1, 2]] * 2),
    "negative shapes": lambda said, arrays: said.update(shapes=[[-1, -2]] * 2),
    "endless shapes": lambda said, arrays: said.update(shapes=[[1e300, 2]] * 2),
    "no words": lambda said, arrays: arrays.clear(),
    "few words": lambda said, arrays: arrays.update(masked=np.zeros(3)),
    "wrong shares": lambda said, arrays: said.update(
        shares=dict.fromkeys(said.get("shares", ()), "ab" * 16)
    ),
    "short shares": lambda said, arrays: said.update(shares=dict.fromkeys(FIVE, "ab")),
}


@pytest.mark.parametrize("quorum", [None, 4])
@pytest.mark.parametrize("change", CHANGES)
def test_a_site_that_lies_about_masks_is_refused_or_ends_the_run_in_one_line(change, quorum):
    engine = lying(CHANGES[change], quorum)
    ended = ""
    try:
        for _ in range(2):
            [answers] = engine.ask(LLOYD)
    except SiteError as error:
        ended = str(error)
    assert "\n" not in ended
    assert ended or answers.total().weights.sum() == 200 - 40 * ("c" in answers.missing)


@pytest.mark.parametrize(("name", "mode"), [("peers.toml", 0o666), ("state/identity.key", 0o644)])
def test_other_users_of_the_machine_cannot_name_sites_or_read_the_key(name, mode, tmp_path):
    folder = create(tmp_path / "trial", ["north", "south", "west"], "127.0.0.1:1")
    home = folder.file("sites", "north")
    (home / name).write_text("x")
    (home / name).chmod(mode)
    with pytest.raises(InputError, match=f"other users of this machine may .*{name}"):
        take_part(home / "site.toml", print)
