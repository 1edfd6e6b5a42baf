"""Secure sums: exact, of all sites only, and right where sites drop out."""

import itertools
import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from secure_sites import federation

from fedcluster.algorithms import Lloyd
from fedcluster.core import ALL_SITES, Data, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.engines.wire import unpack
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.jobs import Compare, Evaluate, Profile, SelectK, execute, fit_of, procedure_of
from fedcluster.metrics import Inertia
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.columns import NumericColumn
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.selection import Selection
from fedcluster.texts import Table
from fedcluster_app.report.job_files import write_job
from fedcluster_app.report.messages import shown
from fedcluster_app.secure import _masks as masks
from fedcluster_app.secure.cohort import fewest
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.wire.recorder import RecordedEngine
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.usefixtures("short_searches")

NAMES = [f"site-{i}" for i in range(10)]


def blobs(seed=0, n=600, d=3, k=4, scale=1.0):
    rng = np.random.default_rng(seed)
    centers = 6 * rng.normal(size=(k, d))
    return scale * (centers[rng.integers(k, size=n)] + rng.normal(size=(n, d)))


def parts(X, n_sites=10, sample_weight=None):
    weights = np.ones(len(X)) if sample_weight is None else sample_weight
    each = zip(NAMES, np.array_split(X, n_sites), np.array_split(weights, n_sites), strict=False)
    return {name: Data(rows, None if sample_weight is None else w) for name, rows, w in each}


def fitted(job, data, quorum=None, *, secure=True):
    wire = federation(data, secure=secure, dropouts=quorum is not None)
    engine = (SecureEngine if secure else RemoteEngine)(wire, data, quorum=quorum)
    d = next(iter(data.values())).X.shape[1]
    names = [f"x{j}" for j in range(d)]
    engine.choose(names, raw=procedure_of(job).preprocessing is not None)
    return execute(job, engine, columns=names), wire


FORMATS = st.sampled_from(
    [masks.NARROW, masks.WIDE, masks.SIZE, masks.FixedPoint(2, 20), masks.FixedPoint(2, 48)]
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FORMATS, st.lists(st.lists(FINITE, min_size=3, max_size=3), min_size=1, max_size=7))
def test_a_sum_of_words_is_the_sum_of_rounded_values_to_the_last_bit(how, sites):
    """In the ring, whatever their size; what has room is what it seems to be."""
    words = reduce(add, (how.encode(np.array(each)) for each in sites))
    ring = 2 ** (64 + 48 * (how.n_words - 1))
    for column, got in zip(zip(*sites, strict=True), how.decode(words), strict=True):
        whole = sum(round(Fraction(x) * 2**how.fraction) for x in column)
        if masks.size_of(np.array(column))[0] < min(how.limit / 2, 1e308):
            assert got == whole / 2**how.fraction
        elif how != masks.SIZE:
            apart = (Fraction(got) * 2**how.fraction - whole) % ring
            assert min(apart, ring - apart) <= ring * Fraction(1, 2**53)


def test_the_size_of_values_is_told_up_to_the_largest_float():
    largest = np.finfo(np.float64).max
    for values in ([1e308, 1e308], [largest], [0.0], [-3.5, 2.0]):
        size = masks.size_of(np.array(values))
        assert size[0] == min(sum(map(abs, values)), largest)
        assert masks.SIZE.decode(masks.SIZE.encode(size))[0] == size[0]
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="not finite"):
            masks.NARROW.encode(np.array([1.0, value]))


def test_the_format_follows_from_the_state_alone():
    assert masks.format_for(State.at([[0.0, 3.0], [0.2, -8.0]])) == masks.NARROW
    for state in (State(), State.at([[0.0], [0.0]]), State.at([[1e7], [2.0]])):
        assert masks.format_for(state) == masks.WIDE


def test_so_many_shares_as_the_threshold_make_a_secret_and_fewer_do_not():
    secrets = masks.SumSecrets()
    each = masks.shares(secrets, 3, 5)
    for places in itertools.combinations(range(5), 3):
        assert masks.combined({i: each[i][:16] for i in places}) == secrets.key_seed
        assert masks.combined({i: each[i][16:] for i in places}) == secrets.own_seed
    assert masks.combined({i: each[i][:16] for i in (0, 4)}) != secrets.key_seed
    assert secrets.key_seed.hex() not in repr(secrets)
    key = bytes(range(32))
    assert (masks.stream(key, 5) == masks.stream(key, 9)[:5]).all()
    assert (masks.stream(key, 5) != masks.stream(bytes(32), 5)).all()


@pytest.mark.parametrize(("n", "t"), [(n, t) for n in range(3, 7) for t in range(n // 2 + 1, n)])
def test_no_coordinator_can_leave_out_more_sites_than_the_bound_says(n, t):
    """Against all that it can tell the sites, tried one after the other.

    Sites 0 to m - 1 are to be left out of the total that the last one is in. Each site says of some
    others that they have dropped out, so many as it was named sites beyond the threshold.
    """
    for named in range(t, n + 1):
        most = 0
        for m in range(1, named):
            can = [n - t] * (n - 1) + [named - t]
            others = [[k for k in range(m) if k != j] for j in range(n)]
            said = [
                itertools.combinations(k, min(c, len(k))) for c, k in zip(can, others, strict=True)
            ]
            for told in itertools.product(*said):
                by_site = Counter(itertools.chain.from_iterable(told))
                if all(by_site[k] >= t for k in range(m)):
                    most = m
                    break
        assert fewest(named, t, n) <= named - most
        assert most == 0 or fewest(named, t, n) >= named - most - 1
    assert fewest(n, n, n) == n


def kinds():
    rng = np.random.default_rng(5)
    tails = rng.standard_t(1.5, size=(500, 2)) + 9 * rng.integers(3, size=(500, 1))
    missing = np.where(rng.random((600, 3)) < 0.1, np.nan, blobs(8))
    weights = rng.uniform(0.5, 3, 600)
    yield "blobs", fit_of(4), parts(blobs())
    yield "heavy tails", fit_of(3, prepare=PreprocessingSpec(scale="robust")), parts(tails)
    yield "raw, large and small columns", fit_of(3), parts(blobs(1, d=2) * [1e9, 1e-7] + [1e9, 0])
    yield "scaled", fit_of(4, prepare=PreprocessingSpec()), parts(blobs(2) * [1e5, 1, 1e-6])
    yield "fuzzy", fit_of(3, m=2.0), parts(blobs(3, k=3))
    yield "mixture", fit_of(2, model="mixture", covariance_type="diag"), parts(blobs(4, n=200, k=2))
    yield "choice of k", fit_of([2, 3, 4]), parts(blobs(6, k=3))
    yield "weights", fit_of(3), parts(blobs(7, k=3), sample_weight=weights)
    for how in ("mean", "ignore"):
        yield how, fit_of(3, prepare=PreprocessingSpec(missing=how)), parts(missing)
    yield "small sites", fit_of(2), parts(blobs(9, n=35, k=2))
    yield "trimmed", fit_of(3, trim=0.05), parts(blobs(10, k=3))
    yield "profile", fit_of(3, profile=True), parts(blobs(11, k=3))
    yield "spherical", fit_of(3, metric="cosine"), parts(blobs(12, k=3))
    yield "choice of k by indices", SelectK(k_max=3), parts(blobs(13, n=200, k=2))


@pytest.mark.parametrize(("job", "data"), [pytest.param(j, d, id=name) for name, j, d in kinds()])
def test_centres_are_those_of_plain_sums(job, data):
    told, _ = fitted(job, data)
    plain, _ = fitted(replace(job, sums_only=True), data, secure=False)
    one, other = (report.outcome.value for report in (told, plain))
    if isinstance(one, Selection):
        assert one.n_clusters == other.n_clusters
        for k, scores in one.table.items():
            wanted = {n: pytest.approx(s, rel=1e-6, nan_ok=True) for n, s in scores.items()}
            assert other.table[k] == wanted
        one, other = (each.results[each.n_clusters] for each in (one, other))
    scale = np.abs(other.state.centers).max(axis=0)
    assert (np.abs(one.state.centers - other.state.centers) <= 1e-9 * scale).all()
    np.testing.assert_allclose(one.state.weights, other.state.weights, rtol=1e-9)
    assert told.sites[0].n_rows is None
    assert told.sites[0].total_rows == sum(map(len, data.values()))


def test_scores_and_profiles_of_a_model_are_those_of_plain_sums(tmp_path):
    data, model = parts(blobs(14, k=3)), str(tmp_path / "model.json")
    report, _ = fitted(fit_of(3, prepare=PreprocessingSpec()), data)
    write_job(tmp_path, report, "out")

    def outcomes(job):
        return [fitted(job, data, secure=each)[0].outcome.value for each in (True, False)]

    told, plain = outcomes(Evaluate(model))
    assert dict(told) == {n: pytest.approx(s, rel=1e-9, nan_ok=True) for n, s in plain.items()}
    one, other = (profile.plain()["clusters"] for profile in outcomes(Profile(model)))
    assert [list(each["sites"]) for each in one] == [[ALL_SITES]] * 3
    for left, right in zip(one, other, strict=True):
        assert left["weight"] == right["weight"]
        for column, wanted in zip(left["columns"], right["columns"], strict=True):
            numbers = {n: x for n, x in wanted.items() if isinstance(x, float)}
            assert {n: column[n] for n in numbers} == pytest.approx(numbers, rel=1e-9)


def test_outcomes_are_compared_as_by_plain_sums_but_not_by_site():
    data, model = parts(blobs(14, k=3)), Model(np.array([[-9.0], [9.0]]), np.ones(2), ("x0",))
    secure, plain = (
        fitted(Compare(model, ["x1"]), data, secure=each)[0].outcome.value.outcomes[0]
        for each in (True, False)
    )
    assert secure.test.p == pytest.approx(plain.test.p, rel=1e-6)
    assert secure.ranks == plain.ranks
    assert np.isnan([secure.by_site.p, plain.by_site.p]).tolist() == [True, False]
    assert secure.sentence().endswith("; nothing is known by site")


@pytest.mark.parametrize("quorum", [None, 8])
def test_a_total_is_that_of_the_fixed_point_to_the_last_bit(quorum):
    data, state = parts(blobs(15)), State.at([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    engine = SecureEngine(federation(data, dropouts=quorum is not None), data, quorum=quorum)
    [answers] = engine.ask([Task(Lloyd(), state)])
    rng = np.random.default_rng(0)
    each = [Lloyd().client_step(state, rows, rng) for rows in data.values()]
    for name in ("sums", "weights"):
        words = reduce(add, (masks.NARROW.encode(getattr(one, name).ravel()) for one in each))
        assert (getattr(answers.total(), name).ravel() == masks.NARROW.decode(words)).all()
    assert answers.by_site.keys() == {ALL_SITES}
    assert answers.answered == tuple(NAMES)


@pytest.mark.thorough
def test_masked_words_are_uniform_and_independent():
    """A million words of a site: each of their eight bytes, and each against the one before."""
    data = parts(blobs(16, n=300, d=40, k=4), n_sites=3)
    state = State.at(np.resize(blobs(17, n=64, d=40), (250, 40)))
    wire = federation(data)
    engine = SecureEngine(wire, data)
    for _ in range(12):
        engine.ask([Task(Lloyd(), state)])
    words = wire.words
    assert len(words) > 1e6
    octets = words.view(np.uint8).reshape(-1, 8)
    pairs = octets[1:, 0] // 16 * 16 + octets[:-1, 0] // 16
    for values in (*octets.T, pairs):
        counts = np.bincount(values, minlength=256)
        statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert chi2.sf(statistic, 255) > 1e-6
    assert len(np.unique(words)) == len(words)


def test_no_file_of_a_coordinator_holds_a_sum_of_one_site(tmp_path):
    data = parts(blobs(18, n=120) + 1234.5678)
    state = State.at([[1234.0, 1235.0, 1236.0]])
    planted = [Lloyd().client_step(state, rows, np.random.default_rng()) for rows in data.values()]
    numbers = [x for each in planted for x in (*each.sums.ravel(), *each.weights) if x != 12.0]
    found, folder = {}, tmp_path / "True"
    for secure in (False, True):
        wire = federation(data, secure=secure)
        engine = (SecureEngine if secure else RemoteEngine)(wire, data)
        engine.choose(["x0", "x1", "x2"])
        [before] = RecordedEngine(engine, tmp_path / str(secure)).ask([Task(Lloyd(), state)])
        files = [path.read_bytes() for path in (tmp_path / str(secure)).iterdir()]
        told = b"".join([*files, *(reply for *_, reply in wire.log)])
        found[secure] = sum(np.float64(x).tobytes() in told for x in numbers)
    assert found == {True: 0, False: len(numbers)}
    [after] = RecordedEngine(engine, folder).ask([Task(Lloyd(), state)])
    assert after.answered == before.answered == tuple(NAMES)
    assert (after.total().sums == before.total().sums).all()


def test_small_groups_stay_where_they_are_and_only_the_total_is_known():
    data = parts(np.repeat(np.arange(10.0), 12)[:, None])
    wire = federation(data, filters=(MinRows(2), MinClusterSize(5)))
    engine = SecureEngine(wire, data)
    [answers] = engine.ask([Task(Lloyd(), State.at([[0.0], [4.0], [9.4]]))])
    assert answers.total().weights.tolist() == [36.0, 48.0, 36.0]
    assert all(site.n_rows is None for site in engine.introduce())


def test_a_total_of_nothing_ends_a_run_as_it_does_without_masks():
    """Masked answers have their full length, whatever the limits hold back."""
    X, limits = blobs(3), (MinClusterSize(50),)
    data = parts(X)
    secure = SecureEngine(federation(data, filters=limits), data)
    plain = LocalEngine([Client(name, rows, limits) for name, rows in data.items()])
    for engine in (secure, plain):
        with pytest.raises(HeldBackError, match="no site sent anything"):
            execute(fit_of(4, init=X[:4], seed=0), engine)


PHASES = ("keys", "shares", "masked", "unmask")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("quorum", [None, 8])
@pytest.mark.parametrize("times", [4, pytest.param(20, marks=pytest.mark.long)])
def test_two_of_ten_sites_gone_in_any_phase(phase, quorum, times):
    rng = np.random.default_rng(PHASES.index(phase))
    data = parts(blobs(19, n=200, d=2, k=2))
    asked = [Task(Lloyd(), state := State.at([[0.0, 0.0], [3.0, 3.0]]))]
    for _ in range(times):
        gone, after = rng.choice(NAMES, 2, replace=False), rng.integers(2)
        seen = dict.fromkeys(gone, 0)

        def lost(stage, site, gone=gone, after=after, seen=seen):
            if site not in gone:
                return False
            seen[site] += stage == phase
            return seen[site] > (after if phase in ("masked", "unmask") else 0)

        wire = federation(data, lost, dropouts=quorum is not None)
        engine = SecureEngine(wire, data, quorum=quorum)
        if quorum is None and phase == "unmask":  # then there is none
            engine.ask(asked)
            continue
        if quorum is None or phase == "keys":  # a run begins with all of its sites
            with pytest.raises(SiteError, match=r"8 of 10 sites answered, where 10 are needed"):
                for _ in range(3):
                    engine.ask(asked)
            continue
        for _ in range(2):
            [answers] = engine.ask(asked)
            rows = np.concatenate([data[name].X for name in answers.answered])
            right = Lloyd().client_step(state, Data(rows), rng)
            np.testing.assert_allclose(answers.total().sums, right.sums, rtol=1e-12)
            assert (answers.total().weights == right.weights).all()
        if phase != "unmask":
            assert set(answers.missing) == set(gone)


def test_a_third_site_that_drops_out_ends_the_run_in_one_line():
    data = parts(blobs(20, n=100))

    def lost(stage, site):
        return stage != "keys" and site > "site-6"

    engine = SecureEngine(federation(data, lost, dropouts=True), data, quorum=8)
    with pytest.raises(SiteError, match=r"round 2: 7 of 10 sites answered, where 8 are needed"):
        engine.ask([Task(Lloyd(), State.at([[0.0, 0.0, 0.0]]))])


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (fit_of(2, participation=0.5), "over all sites"),
        (fit_of(2, algorithm="fkm"), r"do not add up|sums"),
        (fit_of(2, algorithm="kfed"), r"do not add up|sums"),
    ],
)
def test_jobs_that_need_a_sample_or_the_answers_of_single_sites_are_refused(job, reason):
    with pytest.raises((SiteError, InputError), match=reason):
        fitted(job, parts(blobs(21, n=100)))


def test_sums_without_room_end_the_run_and_nobody_learns_whose_they_were():
    """A site that refused them could be asked until it does: its sums would be measured."""
    said = set()
    for liar in ("site-3", "site-7"):
        data = parts(blobs(22, n=100))
        data[liar].X[0, 0] = 1e40
        engine = SecureEngine(federation(data), data)
        with pytest.raises(SiteError, match=r"sums of Lloyd have no room in fixed point") as it:
            engine.ask([Task(Lloyd(), State.at([[1.0, 1.0, 1.0]]))])
        said.add(str(it.value))
    assert len(said) == 1


def test_a_coordinator_cannot_measure_a_site_by_what_has_no_room():
    """It scales rows until a sum wraps: each site answers alike, and only the total is learnt."""
    data = parts(blobs(25, n=200, d=1))
    wire = federation(data)
    engine = SecureEngine(wire, data)
    engine.choose(["x0"], raw=True)
    engine.introduce()
    for exponent in (0, 12, 24, 48):
        how = Preprocessor((NumericColumn("x0", scale=10.0**-exponent),), missing="error")
        wire.log.clear()
        with suppress(SiteError):
            engine.ask([Task(Inertia(), State.at([[1.0]]), preprocessor=how)])
        told = [unpack(reply)[0] for *_, reply in wire.log]
        assert not any("refused" in each or "failed" in each for each in told)
        assert len({len(reply) for *_, reply in wire.log}) == 1


def test_files_and_page_of_a_run_tell_that_sums_were_secure_and_nothing_of_a_site(tmp_path):
    data = parts(blobs(24, k=3))
    report, _ = fitted(fit_of(3, profile=True, prepare=PreprocessingSpec()), data)
    outcome = write_job(tmp_path, report, "out")
    history = json.loads((tmp_path / "history.json").read_text())
    assert {(site["weight"], site["secure"]) for site in history["sites"]} == {(None, True)}
    page = (tmp_path / "report.html").read_text()
    assert "nothing of a single site" in page
    assert "Rows by site and cluster" not in page
    told = shown({**outcome, "out": "", "files": []}, 80)
    [table] = [part for part in told if isinstance(part, Table) and part.title == "Sites"]
    assert {line[1] for line in table.rows} == {"not told"}
