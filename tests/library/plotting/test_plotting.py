"""Plots and HTML of fitted estimators, as notebooks show them."""

import importlib
import re
import sys
from typing import Any

import numpy as np
import pytest

from fedcluster import FederatedKMeans

pyplot = pytest.importorskip("matplotlib.pyplot")

from fedcluster.plotting import (  # noqa: E402
    CenterProfilesDisplay,
    ClustersBySiteDisplay,
    ConvergenceDisplay,
    KSelectionDisplay,
    SilhouetteDisplay,
    StabilityDisplay,
)

ROWS = {
    "north": np.array([[0.0, 1.0], [1.0, 0.0], [9.0, 9.0]]),
    "<b>south": np.array([[0.0, 0.0], [10.0, 9.0], [9.0, 10.0], [10.0, 10.0]]),
}
POOLED = np.concatenate([*ROWS.values()])


def fitted(**how) -> Any:
    return FederatedKMeans(2, algorithm="lloyd", random_state=0, **how).fit(ROWS)


@pytest.fixture(scope="module")
def model():
    return fitted(stability=5, profile=True)


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@pytest.mark.parametrize(
    "kind",
    [
        *(ConvergenceDisplay, StabilityDisplay, ClustersBySiteDisplay),
        *(CenterProfilesDisplay, SilhouetteDisplay),
    ],
)
def test_a_display_draws_on_new_axes_or_on_those_that_are_given(kind, model):
    display = kind.from_estimator(model)
    assert display.ax_.figure is display.figure_
    figure, ax = pyplot.subplots()
    assert display.plot(ax=ax) is display
    assert (display.ax_, display.figure_) == (ax, figure)


def test_convergence_shows_the_rounds_of_the_estimator(model):
    display = ConvergenceDisplay.from_estimator(model, color="black")
    [line] = display.ax_.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [d["round"] for d in model.history_])
    np.testing.assert_array_equal(line.get_ydata(), [d["inertia"] for d in model.history_])
    assert line.get_color() == "black"


def test_bars_are_the_shares_of_the_clusters(model):
    display = ClustersBySiteDisplay.from_estimator(model)
    far = int(model.predict([[10.0, 10.0]])[0])
    by_site = dict(zip(display.sites, display.counts[:, far], strict=True))
    assert by_site == {"north": 1, "<b>south": 3}
    widths = dict(zip(display.sites, (b.get_width() for b in display.bars_[far]), strict=True))
    assert widths == pytest.approx({"north": 1 / 3, "<b>south": 3 / 4})


def test_profiles_are_in_spreads_and_begin_with_what_sets_clusters_apart(model):
    rows = {site: np.column_stack([np.ones(len(X)), X]) for site, X in ROWS.items()}
    fitted = FederatedKMeans(2, algorithm="lloyd", random_state=0).fit(rows)
    display = CenterProfilesDisplay.from_estimator(fitted, most=2)
    assert set(display.columns) == {"x1", "x2"}
    w = fitted.cluster_weights_ / fitted.cluster_weights_.sum()
    np.testing.assert_allclose(display.apart @ w, 0, atol=1e-12)  # weighted mean 0
    centers = fitted.cluster_centers_[:, [int(name[1:]) for name in display.columns]]
    between = w @ (centers - w @ centers) ** 2
    within = fitted.inertia_ / fitted.cluster_weights_.sum() / 3  # the same in each of 3 columns
    np.testing.assert_allclose(display.apart**2 @ w, between / (between + within))
    np.testing.assert_array_equal(display.image_.get_array(), display.apart)


def test_profiles_of_scaled_rows_are_in_spreads_of_the_rows():
    model = fitted(prepare="standard")
    display = CenterProfilesDisplay.from_estimator(model)
    apart = (model.centers_frame_.to_numpy() - POOLED.mean(axis=0)) / POOLED.std(axis=0)
    order = [int(name[1:]) for name in display.columns]
    np.testing.assert_allclose(display.apart, apart.T[order])


def test_stability_shows_every_replicate_and_the_mean(model):
    display = StabilityDisplay.from_estimator(model, alpha=0.5)
    found = model.stability_
    _, *dots = display.ax_.get_lines()
    for j in range(2):
        np.testing.assert_array_equal(dots[2 * j].get_xdata(), found.jaccards[:, j])
        np.testing.assert_array_equal(dots[2 * j + 1].get_xdata(), found.means[[j]])
        assert dots[2 * j].get_alpha() == 0.5
    told = f"1 {model.cluster_names_[1]}: {found.words[1]}"
    assert display.ax_.get_yticklabels()[1].get_text() == told


def test_silhouettes_are_those_of_the_rows_by_cluster(model):
    display = SilhouetteDisplay.from_estimator(model)
    near, far = np.sort(model.transform(POOLED), axis=1).T
    s = (far - near) / far
    for j, bar in enumerate(display.bars_):
        own = s[model.predict(POOLED) == j]
        assert bar.get_width() == pytest.approx(own.mean(), rel=1e-12)
        assert display.spreads[j] == pytest.approx(own.std(), rel=1e-9)
        (low, _), (high, _) = display.bars_.errorbar.lines[2][0].get_segments()[j]
        assert (high - low) / 2 == pytest.approx(own.std(), rel=1e-9)
    assert display.ax_.get_lines()[-1].get_xdata()[0] == pytest.approx(s.mean(), rel=1e-12)


def test_the_choice_of_k_is_marked_and_a_table_in_a_notebook():
    rows = [np.r_[x, x + 50] for x in np.random.default_rng(0).normal(size=(2, 30, 2))]
    chosen = FederatedKMeans([1, 2, 3], rule="vote", random_state=0).fit(rows)
    selection = chosen.selection_
    assert selection is not None
    display = KSelectionDisplay.from_estimator(chosen, index="inertia")
    verdict, curve, mark = display.ax_.get_lines()
    assert verdict.get_xdata()[0] == chosen.n_clusters_ == 2
    assert list(curve.get_xdata()) == [1, 2, 3]
    assert list(mark.get_xdata()) == [selection.says["inertia"]]
    with pytest.raises(ValueError, match=r"index must be one of .*not 'height'"):
        KSelectionDisplay(selection, index="height")
    shown = selection._repr_html_()
    assert "<caption>2 clusters. " in shown
    assert shown.count("<tr>") == 1 + 3
    assert '<th scope="row">2 (chosen)</th>' in shown


def test_what_cannot_be_plotted_is_said(model, monkeypatch):
    with pytest.raises(ValueError, match="given its number of clusters"):
        KSelectionDisplay.from_estimator(model)
    for kind in (ConvergenceDisplay, ClustersBySiteDisplay):
        with pytest.raises(ValueError, match="it is not fitted"):
            kind.from_estimator(FederatedKMeans(2))
    plain = fitted()
    with pytest.raises(ValueError, match="with profile=True"):
        SilhouetteDisplay.from_estimator(plain)
    with pytest.raises(ValueError, match="fit it with stability=True"):
        StabilityDisplay.from_estimator(plain)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "fedcluster.plotting")
    with pytest.raises(ImportError, match=r"fedcluster\[plot\]"):
        importlib.import_module("fedcluster.plotting")


def test_clusters_have_their_names_in_every_plot():
    model = fitted(stability=3, profile=True)
    model.cluster_names_ = ["$5 and $6", "far"]
    by_site, profiles, silhouettes, stability = (
        kind.from_estimator(model).ax_
        for kind in (
            ClustersBySiteDisplay, CenterProfilesDisplay, SilhouetteDisplay, StabilityDisplay
        )
    )  # fmt: skip
    names = [r"0 \$5 and \$6", "1 far"]
    assert [each.get_text() for each in by_site.get_legend().get_texts()] == names
    assert [each.get_text() for each in profiles.get_xticklabels()] == names
    assert [each.get_text() for each in silhouettes.get_yticklabels()] == names
    told = [each.get_text().rpartition(":")[0] for each in stability.get_yticklabels()]
    assert told == names
    bare = StabilityDisplay(model.stability_).plot()
    assert bare.ax_.get_yticklabels()[1].get_text().startswith("cluster 1: ")


def test_a_notebook_shows_clusters_below_the_parameters_and_their_stability(model):
    shown = fitted()._repr_mimebundle_()["text/html"]
    bare = FederatedKMeans(2)._repr_mimebundle_()["text/html"]
    assert shown.startswith(bare[:20])
    assert "2 clusters of 7 rows at 2 sites. The number 2 was given" in shown
    assert shown.count('<article class="card"') == 2
    assert "<article" not in bare
    style = shown.rpartition("<style>")[2].partition("</style>")[0]
    selectors = re.findall(r"^ *([^@{}\n]+) [{]", style, re.MULTILINE)
    assert selectors
    assert all(each.startswith(".fedcluster") for each in selectors)  # not of the notebook
    words = [word.capitalize() for word in model.stability_.words]
    assert all(f"<strong>{word}</strong>: found again" in model._repr_html_() for word in words)
    alone = model.stability_._repr_html_()
    assert "<caption>Stability in 5 replicates</caption>" in alone
    assert "does not show whether there are too few clusters" in alone
