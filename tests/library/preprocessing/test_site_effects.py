"""Offsets of sites: found from descriptions, subtracted at the sites, told where they cannot be."""

import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from partitions import InChunks
from sklearn.metrics import adjusted_rand_score

from fedcluster import (
    FederatedGaussianMixture,
    FederatedKMeans,
    MinClusterSize,
    PreprocessingSpec,
)
from fedcluster.core import Data, SiteInfo
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.jobs import Evaluate, Profile, execute, fit_of, procedure_of
from fedcluster.model import Model
from fedcluster.options.refusals import RefusedError
from fedcluster.preprocessing import site_model
from fedcluster.preprocessing.columns import NumericColumn
from fedcluster.preprocessing.site_effects import (
    Registration,
    SiteEffects,
    registered,
    starts_of,
)
from fedcluster.preprocessing.site_model import SITE_EFFORT, Points, best_model, fitted_model
from fedcluster.preprocessing.transform import Preprocessor
from fedcluster.privacy import Groups
from fedcluster.recipes import combinations

MEANS = np.array([[0.0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 4, 0]])
"""Subtypes, four deviations apart or more."""


def drawn(shares, offset, seed=0, n=120):
    """Rows, clean rows, sites and subtypes; one line of shares for each site."""
    rng = np.random.default_rng(seed)
    sites = np.repeat(np.arange(len(shares)), n)
    subtypes = np.concatenate([rng.choice(3, n, p=each) for each in shares])
    clean = MEANS[subtypes] + rng.normal(size=(len(sites), 4))
    return clean + (offset * rng.normal(size=(len(shares), 4)))[sites], clean, sites, subtypes


SKEWED = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.3, 0.6], [0.5, 0.5, 0.0], [0.0, 0.3, 0.7]]
SITE = PreprocessingSpec(adjust="site")


def kmeans(how=SITE, k=3) -> Any:
    return FederatedKMeans(k, prepare=how, random_state=0)


def ari(model, rows, sites, subtypes):
    return adjusted_rand_score(subtypes, model.fit(rows, sites=sites).labels_)


@pytest.mark.thorough
@pytest.mark.parametrize("k", [3, "auto"])
@pytest.mark.filterwarnings("ignore:.* to 98 %:UserWarning")
def test_clusters_are_those_of_rows_without_effects(k):
    scores = []
    for seed in range(4):
        rows, clean, sites, subtypes = drawn(SKEWED, 4.0, seed)
        found, raw = kmeans(SITE, k), kmeans("standard", k)
        each = [ari(found, rows, sites, subtypes), ari(raw, clean, sites, subtypes)]
        assert len(found.cluster_centers_) == len(raw.cluster_centers_)
        scores.append([*each, ari(raw, rows, sites, subtypes)])
    adjusted, without, raw = np.mean(scores, axis=0)
    assert adjusted > without - 0.02
    assert raw < 0.5


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("scale", "own"), [("standard", {}), ("none", {"protection": "groups"})])
def test_gains_of_sites_are_divided_out(scale, own):
    rows, _, sites, subtypes = drawn(SKEWED, 3.0, 3, n=400)
    gains = np.exp(0.5 * np.random.default_rng(3).normal(size=(5, 4)))
    how = {"k": 3, "how": replace(SITE, scale=scale, adjust="site-scale")}
    scaled = kmeans(**how).set_params(**own)
    found = ari(scaled, 50 + gains[sites] * rows, sites, subtypes)
    assert found > ari(kmeans(**how).set_params(**own), rows, sites, subtypes) - 0.05
    offsets = kmeans(replace(SITE, scale=scale)).set_params(**own)
    assert ari(offsets, 50 + gains[sites] * rows, sites, subtypes) < found - 0.1
    assert "Gains of sites differ by factors of 1." in scaled.fit_report_.notes[-1]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_column_of_codes_has_no_gain():
    rows, _, sites, subtypes = drawn(SKEWED, 3.0, 3, n=200)
    sick = np.random.default_rng(4).random(len(rows)) < np.array([0.02, 0.2, 0.5])[subtypes]
    rows = np.column_stack([rows * np.array([1, 2, 1, 0.5, 1])[sites, None], sick])
    fitted = kmeans(replace(SITE, adjust="site-scale")).fit(rows, sites=sites)
    for i in range(5):
        columns = fitted.preprocessor_.at_site(Data(rows[sites == i])).columns
        before = fitted.preprocessor_.columns
        ratios = [b.scale / c.scale for b, c in zip(before, columns, strict=True)]
        assert ratios[-1] == 1.0
        assert np.log(ratios[:4]) == pytest.approx(-np.log([1, 2, 1, 0.5, 1][i]), abs=0.25)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("protection", [None, Groups()])
def test_a_column_of_codes_has_no_offset_not_in_groups_either(protection):
    rows, clean, sites, subtypes = drawn(SKEWED, 3.0, 3, n=200)
    sick = np.random.default_rng(4).random(len(rows)) < np.array([0.1, 0.5, 0.9])[subtypes]
    fitted = kmeans(replace(SITE, scale="none")).set_params(protection=protection)
    labels = fitted.fit(np.column_stack([rows, sick]), sites=sites).labels_
    here = fitted.preprocessor_.at_site(Data(np.column_stack([rows, sick])[sites == 3]))
    columns = zip(fitted.preprocessor_.columns, here.columns, strict=True)
    assert [one == other for one, other in columns] == [False] * 4 + [True]
    assert fitted.preprocessor_.effects.spread[-1] == 0.0
    without = kmeans(None).set_params(protection=protection)
    clean = np.column_stack([clean, sick])
    assert adjusted_rand_score(subtypes, labels) > ari(without, clean, sites, subtypes) - 0.02
    with pytest.raises(InputError, match="adjust='site' is for columns with more than two values"):
        kmeans().fit(sick[:, None] * 1.0, sites=sites)


@pytest.mark.parametrize("scale", ["standard", "robust", "none"])
def test_it_costs_nothing_where_there_are_no_effects(scale):
    _, clean, sites, subtypes = drawn(SKEWED, 0.0, 5)
    raw = ari(kmeans(scale), clean, sites, subtypes)
    adjusted = kmeans(replace(SITE, scale=scale))
    assert ari(adjusted, clean, sites, subtypes) > raw - 0.01
    assert "are within chance and were not subtracted" in adjusted.fit_report_.notes[0]
    assert "are not needed" in adjusted.fit_report_.notes[0]
    assert not any(adjusted.preprocessor_.effects.spread)


def test_offsets_that_chance_explains_are_not_subtracted():
    rng = np.random.default_rng([95019, 2])
    k, d, n_sites = 3, 9, 3
    subtypes = rng.integers(k, size=600)
    rows = 0.9 * rng.normal(size=(k, d))[subtypes] + rng.normal(size=(600, d))
    sites = np.arange(600) % n_sites
    adjusted, raw = kmeans(SITE, k).fit(rows, sites=sites), kmeans("standard", k)
    np.testing.assert_array_equal(adjusted.labels_, raw.fit(rows, sites=sites).labels_)
    moved = rows + (0.3 * rng.normal(size=(n_sites, d)))[sites]  # beyond chance, and subtracted
    assert "were subtracted" in kmeans(SITE, k).fit(moved, sites=sites).fit_report_.notes[0]


def test_a_single_row_is_told_by_a_column_without_offset_as_far_as_its_noise_lets_it():
    noise, centers = ((1.0, 0.0), (0.0, 1.0)), ((0.0, 0.0), (9.0, 2.5))
    one = SiteEffects(centers, noise, (100.0, 0.001))
    assert [one.is_clear(n) for n in (1, 4)] == [False, True]
    assert SiteEffects(centers, noise, (0.1, 0.0)).is_clear(1)


def test_what_differs_is_said_with_its_columns():
    rows, clean, sites, _ = drawn(SKEWED, 0.0, 1)
    rows = clean + np.outer(np.array([0, 3, -2, 1, 4])[sites], [0, 0, 0, 1])
    [line] = kmeans().fit(rows, sites=sites).fit_report_.notes
    assert "with 3 subtypes" in line
    assert "x3 (2." in line
    assert not any(f"x{j} (" in line for j in range(3))


@pytest.mark.thorough
def test_correlated_columns_are_told_by_the_whole_covariance():
    rng = np.random.default_rng(3)
    rows, _, sites, subtypes = drawn(SKEWED, 0.0, 3, n=200)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0] * [0.4, 0.7, 1.0, 1.8]
    rows = MEANS[subtypes] + rng.normal(size=rows.shape) @ turn.T
    shifted = rows + (3 * rng.normal(size=(5, 4)))[sites]
    clean, found = (
        FederatedGaussianMixture(3, covariance_type="tied", prepare=how, random_state=0)
        for how in (PreprocessingSpec(), SITE)
    )
    assert ari(found, shifted, sites, subtypes) > ari(clean, rows, sites, subtypes) - 0.05


def points_of(rows, sites, weights=None):
    weights = np.ones(len(rows)) if weights is None else weights
    return Points(rows, weights, np.cumsum([0, *np.bincount(sites)]), np.zeros((1, rows.shape[1])))


def test_centers_and_offsets_are_those_of_least_squares():
    rows, _, sites, subtypes = drawn(SKEWED, 4.0, 2)
    points, r = points_of(rows, sites), np.eye(3)[subtypes]
    start = site_model.start_of(MEANS, np.zeros((5, 4)), np.ones(4))
    centers, offsets = site_model.moved(points, r, points.by_site(r), start, fixed=False)
    both = np.linalg.lstsq(np.hstack([np.eye(5)[sites], r]), rows, rcond=None)[0]
    fitted = both[:5][sites] + both[5:][subtypes]
    np.testing.assert_allclose(offsets[sites] + centers[subtypes], fitted, atol=1e-9)
    np.testing.assert_allclose(points.sizes @ offsets, 0.0, atol=1e-8)


def test_centers_that_no_site_tells_stay_as_they_are():
    """Each site has one subtype: any offsets fit, and nothing is divided by 0."""
    rows, _, sites, _ = drawn(np.eye(3), 4.0, 2)
    points, r = points_of(rows, sites), np.eye(3)[sites]
    start = site_model.start_of(MEANS, np.zeros((3, 4)), np.ones(4))
    centers, offsets = site_model.moved(points, r, points.by_site(r) + 1e-310, start, fixed=False)
    np.testing.assert_allclose(centers - centers[0], MEANS - MEANS[0], atol=1e-9)
    np.testing.assert_allclose(centers + offsets, points.means, atol=1e-9)


def test_the_likelihood_never_falls():
    rows, _, sites, _ = drawn(SKEWED, 4.0, 4)
    points = points_of(rows, sites)
    start = site_model.start_of(rows[:3], np.zeros((5, 4)), np.full(4, 4.0))
    steps = (replace(SITE_EFFORT, steps=n, tol=0.0) for n in range(12))
    models = [site_model.em(points, start, each, full=False) for each in steps]
    goals = [each.log_likelihood + np.log(each.shares).sum() / 3 for each in models]
    assert all(after >= before - 1e-8 for before, after in pairwise(goals))
    assert goals[-1] > goals[0] + 10


def test_a_mean_counts_as_its_rows():
    rows, _, sites, _ = drawn(SKEWED, 4.0, 6, n=40)
    twice = points_of(np.repeat(rows, 2, axis=0), np.repeat(sites, 2))
    weighted = points_of(rows, sites, np.full(len(rows), 2.0))
    start = site_model.start_of(MEANS, np.zeros((5, 4)), np.ones(4))
    one, other = (site_model.em(each, start, SITE_EFFORT) for each in (twice, weighted))
    np.testing.assert_allclose(one.counts.sum(0), other.counts.sum(0), rtol=0.05)
    assert np.abs(one.centers - other.centers).max() < 0.2


LINKED = {
    "disconnected": ([[0.5, 0.5, 0], [0.4, 0.6, 0], [0, 0, 1], [0, 0, 1]], True),
    "one subtype shared": ([[0.5, 0.5, 0], [0.4, 0.6, 0], [0, 0.5, 0.5], [0, 0.6, 0.4]], True),
    "a subtype at one site only": ([[0.5, 0.5, 0], [0.4, 0.6, 0], [0.5, 0.5, 0], [0, 0, 1]], True),
    "well linked": ([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.4, 0.4, 0.2], [0.2, 0.3, 0.5]], False),
}


@pytest.mark.parametrize(("shares", "doubted"), LINKED.values(), ids=LINKED)
@pytest.mark.parametrize("seed", range(3))
def test_sites_that_cannot_be_told_are_named(shares, doubted, seed):
    rows, _, sites, _ = drawn(shares, 4.0, seed, n=150)
    found, by_site = kmeans(), {name: rows[sites == i] for i, name in enumerate("abcd")}
    with warnings.catch_warnings(action="ignore"):
        found.fit(by_site)
    named = [line for line in found.fit_report_.warnings if "fewer than two subtypes" in line]
    assert bool(named) == doubted
    assert not doubted or any(name in named[0].partition(" and the other")[0] for name in "abcd")


@pytest.mark.parametrize(("adjust", "gain"), [("site", 1.0), ("site-scale", 1.6)])
def test_a_saved_model_predicts_a_new_site(adjust, gain, tmp_path):
    rows, _, sites, _ = drawn(SKEWED, 4.0, 7)
    rows *= np.array([[1.0], [1.0], [1.0], [gain], [1 / gain]])[sites]
    found = kmeans(replace(SITE, adjust=adjust)).fit(rows, sites=sites)
    found.save(tmp_path / "model.json")
    model = Model.load(tmp_path / "model.json")
    first = rows[sites == 2]
    np.testing.assert_array_equal(model.predict(first), found.labels_[sites == 2])
    moved = model.predict(gain * first + np.array([7.0, -3.0, 2.0, 9.0]))
    assert adjusted_rand_score(moved, found.labels_[sites == 2]) > 0.95
    with pytest.warns(UserWarning, match="has 12 rows to find the offset of the site from"):
        model.predict(first[:12])
    with pytest.raises(InputError, match="has a single row, of which the offset of the site"):
        model.predict(first[:1])
    model.at_site(first).save(tmp_path / "here.json")
    here = Model.load(tmp_path / "here.json")  # of this site, where a single row is enough
    one_by_one = np.concatenate([here.predict(row[None]) for row in first])
    np.testing.assert_array_equal(one_by_one, found.labels_[sites == 2])
    assert here.check(first) == here.at_site(first).check(first) == ()
    engine = LocalEngine([Client("a", Data(first)), Client("b", InChunks(Data(first), 40))])
    for job in (Profile(model), Evaluate(model)):  # each chunk would have an offset of its own
        with pytest.raises(InputError, match="adjusting by site does not go with the rows of 'b'"):
            execute(job, engine)


@pytest.mark.thorough
def test_neither_the_order_of_rows_nor_of_sites_matters():
    rows, _, sites, _ = drawn(SKEWED, 3.0, 8)
    order = np.random.default_rng(0).permutation(len(rows))
    one, other = (kmeans().fit(rows[how], sites=sites[how]) for how in (slice(None), order))
    np.testing.assert_array_equal(one.labels_[order], other.labels_)
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-7)


def test_missing_values_weights_and_text_are_adjusted_too():
    rows, _, sites, subtypes = drawn(SKEWED, 3.0, 9)
    rows[::17, 1] = np.nan
    weight = np.random.default_rng(1).integers(1, 3, len(rows)).astype(float)
    found = kmeans(replace(SITE, missing="drop"))
    labels = found.fit(rows, sites=sites, sample_weight=weight).labels_
    assert (labels[::17] == -1).all()
    kept = labels >= 0
    assert adjusted_rand_score(subtypes[kept], labels[kept]) > 0.85


REFUSED = {
    "chunks": ({}, {"streams": True}, "the rows of 'a', which come in chunks"),
    "secure": ({}, {"secure": True}, "secure sums"),
    "partitions": ({}, {"is_partition": True}, "a Dask collection"),
    "sums": ({"sums_only": True}, {}, "sums_only"),
    "liars": ({"robust": 1}, {}, "robust=1"),
}


@pytest.mark.parametrize(("words", "site", "what"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_with_it_is_refused(words, site, what):
    sites = [SiteInfo(name, **site) for name in "abc"]
    with pytest.raises(RefusedError, match=f"adjusting by site does not go with {what}"):
        combinations.check(fit_of(3, prepare=SITE, **words), sites)
    if site:
        how = Preprocessor((NumericColumn("x"),), effects=ONE)
        model = Model(np.zeros((1, 1)), np.ones(1), ("x",), preprocessor=how)
        with pytest.raises(RefusedError, match=f"adjusting by site does not go with {what}"):
            procedure_of(Profile(model)).check(sites)


@pytest.mark.parametrize("more", [{"pca": 2}, {"unit": True}, {"missing": "ignore"}])
def test_rows_without_columns_of_their_own_are_refused(more):
    with pytest.raises(RefusedError, match="adjusting by site does not go with"):
        replace(SITE, **more)


ONE = SiteEffects(((0.0,),), ((1.0,),), (1.0,))
HOSTILE = {
    "gain": replace(ONE, gains=((1.0,), (-1.0,), (0.0,))),
    "no covariance": replace(ONE, noise=((-1.0,),)),
    "width": SiteEffects(((0.0, 0.0),), ((1.0, 0.0), (0.0, 1.0)), (1.0, 1.0)),
    "variance": replace(ONE, spread=(-1.0,)),
    "infinite": replace(ONE, centers=((np.inf,),)),
    "centres": replace(ONE, centers=((0.0,),) * 1001),
    "gains": replace(ONE, gains=((1.0,), (1.0,))),
}


@pytest.mark.parametrize("effects", HOSTILE.values(), ids=HOSTILE)
def test_a_site_refuses_effects_that_are_none(effects):
    how = Preprocessor((NumericColumn("x0"),), effects=effects)
    with pytest.raises(ValueError, match=r"offsets|must be|gains of sites|of gains"):
        how.check(["x0"])
    good = replace(how, effects=replace(ONE, gains=((1.0,), (1.0,), (0.0,))))
    good.check(["x0"])
    assert Preprocessor.from_plain(good.plain()) == good


def test_an_offset_of_a_site_with_one_subtype_is_the_smallest():
    centers = np.array([[0.0, 0.0], [8.0, 0.0]])
    rows = np.random.default_rng(0).normal(size=(50, 2)) + np.array([8.5, 0.0])
    starts = starts_of(rows.mean(0), centers)
    offset, shares = registered(rows, np.ones(50), centers, starts, np.ones(2))
    assert np.abs(offset - [0.5, 0.0]).max() < 0.3
    assert shares[1] > 0.9


def test_a_column_in_which_sites_do_not_differ_gets_no_offset_from_correlated_ones():
    rng = np.random.default_rng(1)
    noise = np.array([[1.0, 0.6], [0.6, 1.0]])
    rows = rng.multivariate_normal([20.0, 0.0], noise, 100)
    rows[:30] += [9.0, 9.0]
    known = {"centers": [[0.0, 0.0], [9.0, 9.0]], "noise": noise, "spread": [400.0, 0.0]}
    effects = SiteEffects.from_plain(known)
    _, offset = effects.adjustment(rows, np.ones(100))
    assert offset == pytest.approx([20.0, 0.0], abs=0.2)
    assert abs(offset[1]) < 1e-9


def test_a_large_site_compares_starts_on_some_rows_in_any_order():
    rng = np.random.default_rng(2)
    rows = rng.normal([3.0, -1.0], size=(3 * Registration().rows, 2))
    rows[: len(rows) // 5] += [8.0, 0.0]
    effects = SiteEffects(((0.0, 0.0), (8.0, 0.0)), ((1.0, 0.0), (0.0, 1.0)), (9.0, 9.0))
    _, offset = effects.adjustment(rows, np.ones(len(rows)))
    assert offset == pytest.approx([3.0, -1.0], abs=0.05)
    _, again = effects.adjustment(rng.permutation(rows), np.ones(len(rows)))
    assert again == pytest.approx(offset, abs=1e-12)


def test_the_number_of_subtypes_is_that_of_smallest_bic():
    rows, _, sites, _ = drawn(SKEWED, 4.0, 10)
    points = points_of(rows, sites)
    model, n = best_model(points, 0), float(len(rows))
    assert len(model.centers) == 3
    assert model.bic(n) < min(fitted_model(points, k, 0).bic(n) for k in (2, 4))


def test_offsets_are_found_by_a_job_over_engines():
    rows, _, sites, _ = drawn(SKEWED, 4.0, 11)

    def report(filters=(), last=120):
        parts = {n: rows[sites == i][: last if n == "e" else 120] for i, n in enumerate("abcde")}
        engine = LocalEngine([Client(n, Data(own), filters) for n, own in parts.items()])
        return execute(fit_of(3, prepare=SITE), engine)

    found = report()
    assert found.preprocessor is not None
    assert found.preprocessor.effects is not None
    assert any("Offsets of 5 sites were subtracted" in line for line in found.prepared)
    assert not found.fit_report.warnings
    doubts = report([MinClusterSize(10)], 25).fit_report.warnings
    assert "each subtype may have fewer than 10 rows at e: a site then subtracts" in doubts[-1]
