"""The verdict on k, its reason and its doubts, from made-up scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster.core import Result, State
from fedcluster.errors import InputError
from fedcluster.metrics.indices import JUDGES
from fedcluster.selection import Rule
from fedcluster.selection.verdict import because, doubts, judged

BIC, GAP, CALINSKI, SILHOUETTE = JUDGES


def clustering(*centers: float, weights: list[float] | None = None) -> Result:
    k = len(centers)
    weight = np.ones(k) if weights is None else np.array(weights)
    return Result(State(np.array(centers)[:, None], weight), (), "")


def apart(k: int) -> Result:
    """k clusters that are no groups of any others."""
    return clustering(*(100.0 ** np.arange(k)))


def reason(k: int, says: dict[str, int], results: dict[int, Result], rule: str = "vote") -> str:
    voters = tuple(says) if rule == "vote" else (rule,)
    return because(k, says, voters, results, rule)


# The reason


def test_who_says_what_is_listed_and_the_verdict_comes_first() -> None:
    says = {BIC: 2, GAP: 4, CALINSKI: 4, SILHOUETTE: 4}
    said = reason(4, says, {2: apart(2), 4: clustering(0, 1, 50, 90)})
    assert said.startswith(
        "The gap statistic, Calinski-Harabasz and the squared silhouette say 4, the mixture BIC "
        "says 2."
    )


@pytest.mark.parametrize(
    ("says", "tie"),
    [
        ({BIC: 3, GAP: 3, CALINSKI: 5, SILHOUETTE: 5}, True),
        ({BIC: 3, GAP: 3, CALINSKI: 5, SILHOUETTE: 6}, False),
        ({BIC: 3, GAP: 3, CALINSKI: 3, SILHOUETTE: 3}, False),
        ({BIC: 3, GAP: 5}, True),
    ],
)
def test_a_tie_is_one_in_numbers_of_votes(says: dict[str, int], tie: bool) -> None:
    said = reason(3, says, {k: apart(k) for k in range(1, 7)})
    assert ("; in a tie the mixture BIC decides" in said) == tie


@pytest.mark.parametrize("at", [0, 1000])
@pytest.mark.parametrize(("aside", "nested"), [(1.9, True), (2.1, False)])
def test_clusters_nest_if_at_most_a_fiftieth_of_their_spread_is_lost(aside, nested, at):
    """Four clusters at -11, -9, 9 and 11: between them 2 * (81 + 121) = 404, of which 2 % are 8.08.
    Coarse centres that are x beside the means of the pairs lose 2 * 2 * x^2.
    """
    x = np.sqrt(404 * aside / 100 / 4)
    fine = clustering(at - 11, at - 9, at + 9, at + 11)
    coarse = clustering(at - 10 + x, at + 10 + x)
    said = reason(4, {BIC: 4, GAP: 4, CALINSKI: 2}, {2: coarse, 4: fine})
    assert ("The 4 clusters lie in 2 super-clusters." in said) == nested


def test_nesting_counts_rows() -> None:
    """Half of a cluster of weight 1 beside one of weight 99 loses next to nothing."""
    fine = clustering(0, 10, 100, weights=[99, 1, 50])
    means = [(0 * 99 + 10 * 1) / 100, 100.0]
    for centers, nested in ((means, True), ([5.0, 100.0], True), ([30.0, 100.0], False)):
        said = reason(3, {BIC: 3, GAP: 3, CALINSKI: 2}, {2: clustering(*centers), 3: fine})
        assert ("The 3 clusters lie in 2 super-clusters." in said) == nested


def test_only_smaller_k_above_1_are_super_clusters_the_most_named_first() -> None:
    fine = clustering(-11, -9, 9, 11)
    three = clustering(-10, 9, 11)
    results = {1: clustering(0), 2: clustering(-10, 10), 3: three, 4: fine, 5: apart(5)}
    said = reason(4, {BIC: 4, GAP: 4, CALINSKI: 4, SILHOUETTE: 1}, results)
    assert "super" not in said
    said = reason(4, {BIC: 4, GAP: 4, CALINSKI: 4, SILHOUETTE: 5}, results)
    assert "super" not in said
    many = {BIC: 4, GAP: 4, "a": 4, "b": 4, CALINSKI: 2, SILHOUETTE: 3, "davies-bouldin": 3}
    says = {name: k for name, k in many.items() if len(name) > 1}
    assert reason(4, says, results).count("super-clusters") == 1
    assert "The 4 clusters lie in 3 super-clusters." in reason(4, says, results)


def test_a_coarse_cluster_that_no_fine_one_is_nearest_to_is_no_group() -> None:
    fine, coarse = clustering(-1, 1), clustering(0, 500)
    assert "super" not in reason(2, {BIC: 2}, {2: fine})
    three = clustering(-1, 0, 1)
    assert "super" not in reason(3, {BIC: 3, GAP: 2}, {2: coarse, 3: three})


def test_a_rule_of_one_index_says_so_and_silence_is_said() -> None:
    assert reason(3, {GAP: 3}, {3: apart(3)}, rule=GAP) == "The gap statistic says 3."
    silent = because(2, {}, JUDGES, {2: apart(2)}, "vote")
    assert silent.startswith("No index says anything")


# The doubts


def doubted(k: int, says: dict[str, int], abstaining: tuple[str, ...] = (), full: int = 5) -> str:
    voters = tuple(index for index in says if index not in abstaining)
    return "; ".join(doubts(k, says, voters, abstaining, [2, 3, 4, 5, 6], full))


def test_no_doubt_where_all_agree_on_a_k_in_the_middle() -> None:
    assert doubted(4, {BIC: 4, GAP: 4}) == ""


def test_the_ends_of_what_was_tried_are_doubted_but_not_1() -> None:
    assert doubted(6, {BIC: 6}) == "k = 6 is the largest that was tried; try larger ones"
    assert doubted(2, {BIC: 2}) == "k = 2 is the smallest that was tried; try smaller ones"
    assert doubts(1, {BIC: 1}, (BIC,), (), [1, 2, 3], 3) == ()
    assert doubts(1, {BIC: 1}, (BIC,), (), [1], 1) == ()


def test_who_had_no_vote_is_named() -> None:
    one = doubted(4, {BIC: 4, GAP: 6}, (GAP,))
    assert one == (
        "the gap statistic is still improving at k = 6, the largest that was tried, and had no "
        "vote; try larger ones"
    )
    assert "the mixture BIC and the gap statistic are still improving" in doubted(
        4, {BIC: 6, GAP: 6}, (BIC, GAP)
    )


def test_other_votes_are_a_disagreement_unless_they_are_for_1() -> None:
    assert "disagree: 4, 3 and 5 clusters are" in doubted(4, {BIC: 4, GAP: 5, CALINSKI: 3})
    assert doubted(4, {BIC: 4, GAP: 1}) == ""
    assert doubted(4, {BIC: 3}) == ""  # a single index has nobody to disagree with


def test_clusterings_left_aside_are_counted() -> None:
    said = "2 of 5 clusterings have clusters without rows and were left aside"
    assert doubted(4, {BIC: 4}, full=3) == said


# The verdict


def scored(name: str, values: dict[int, float], **more: dict[int, float]) -> dict[int, dict]:
    return {k: {name: v, **{m: more[m][k] for m in more}} for k, v in values.items()}


def test_a_k_with_empty_clusters_is_nobody_s_choice_unless_all_are() -> None:
    table = scored("davies-bouldin", {2: 1.0, 3: 0.1})
    empty = clustering(0, 1, 2, weights=[1, 1, 0])
    found = judged(table, {2: apart(2), 3: empty}, Rule("davies-bouldin"))
    assert found.n_clusters == 2
    assert any("1 of 2 clusterings" in w for w in found.warnings)
    lost = clustering(0, 1, weights=[1, 0])
    assert judged(table, {2: lost, 3: empty}, Rule("davies-bouldin")).n_clusters == 3


@pytest.mark.parametrize(
    ("gaps", "errors", "k"),
    [
        ({1: 0.0, 2: 0.5, 3: 1.0}, {1: 9.0, 2: 9.0, 3: 0.4}, 3),
        ({1: 0.0, 2: 0.5, 3: 1.0}, {1: 0.0, 2: 0.0, 3: 0.5}, 2),
        ({1: 0.0, 2: 0.5, 3: 1.0}, {1: 0.0, 2: 0.0, 3: 1.0}, 1),
    ],
)
def test_the_gap_s_error_is_that_of_the_largest(gaps: dict, errors: dict, k: int) -> None:
    table = scored("gap", gaps, **{"gap-error": errors})
    assert judged(table, {k: apart(k) for k in gaps}, Rule("gap")).n_clusters == k


def test_an_elbow_is_farthest_below_the_line_between_the_ends() -> None:
    """Uneven steps of k: from (1, 100) to (9, 20) the line falls by 10; below it lie 90 - 60 = 30
    at 2, 80 - 45 = 35 at 3 and 60 - 30 = 30 at 5.
    """
    table = scored("inertia", {1: 100.0, 2: 60.0, 3: 45.0, 5: 30.0, 9: 20.0})
    found = judged(table, {k: apart(k) for k in table}, Rule("inertia"))
    assert found.n_clusters == 3
    rising = scored("calinski-harabasz", {2: 0.0, 3: 80.0, 4: 90.0, 5: 100.0})
    results = {k: apart(k) for k in rising}
    assert judged(rising, results, Rule("calinski-harabasz")).n_clusters == 5
    assert judged(rising, results, Rule("calinski-harabasz", pick="elbow")).n_clusters == 3


def test_two_points_have_no_elbow_and_nan_says_nothing() -> None:
    two = scored("inertia", {2: 9.0, 3: 5.0})
    assert judged(two, {2: apart(2), 3: apart(3)}, Rule("inertia")).n_clusters == 3
    table = scored("bic", {2: -1.0, 3: np.nan, 4: 0.0})
    assert judged(table, {k: apart(k) for k in table}, Rule("bic")).says == {"bic": 2}


def test_three_points_have_an_elbow_and_endless_ones_their_best() -> None:
    """From (2, 90) to (4, 10) the line is at 50 where the curve is at 20."""
    three = scored("inertia", {2: 90.0, 3: 20.0, 4: 10.0})
    results = {k: apart(k) for k in range(2, 6)}
    assert judged(three, {k: results[k] for k in three}, Rule("inertia")).n_clusters == 3
    endless = scored("bic", {2: -1.0, 3: -9.0, 4: -9.5, 5: -np.inf})
    assert judged(endless, results, Rule("bic", pick="elbow")).n_clusters == 5


def test_a_single_index_has_no_doubts_about_the_others() -> None:
    values = {2: 0.0, 3: 1.0, 4: 0.5, 5: 0.2}
    table = {
        k: {**dict.fromkeys(JUDGES, v), BIC: -v, CALINSKI: float(k), "gap-error": 0.0}
        for k, v in values.items()
    }
    results = {k: apart(k) for k in table}
    alone = judged(table, results, Rule(BIC))
    assert (alone.n_clusters, alone.rule, alone.warnings) == (3, BIC, ())
    assert alone.reason == "The mixture BIC says 3."
    [warning] = judged(table, results, Rule("vote")).warnings
    assert warning.startswith("Calinski-Harabasz is still improving at k = 5, the largest")


def test_bounds_are_one_pair_for_all_columns_or_one_for_each() -> None:
    for n in (1, 3):
        Rule("gap", bounds=(np.zeros(n), np.ones(n))).check(3)
    Rule("gap").check(3)
    for bounds in ((np.zeros(2), np.ones(2)), (np.zeros(3), np.ones(2))):
        with pytest.raises(InputError, match="the bounds are 2 pairs, but there are 3 columns"):
            Rule("gap", bounds=bounds).check(3)


def test_nobody_says_anything() -> None:
    table = scored("bic", {2: np.nan, 3: np.nan})
    for rule in (Rule("vote"), Rule("bic")):
        found = judged(table, {2: apart(2), 3: apart(3)}, rule)
        assert found.n_clusters == 2
        assert found.reason.startswith("No index says anything")


# The picture


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draw a verdict on made-up scores for k = 2, ..., 6; the figure, laid out."""
    figures = pytest.importorskip("matplotlib.figure")
    backend = pytest.importorskip("matplotlib.backends.backend_agg")
    plain, seen = figures.Figure.savefig, []

    def savefig(figure: Any, path: Path, **options: Any) -> None:
        seen.append(figure)
        plain(figure, path, **options)

    monkeypatch.setattr(figures.Figure, "savefig", savefig)

    def draw(*indices: str, words: int = 0) -> Any:
        values = {2: 0.1, 3: 0.9, 4: 0.5, 5: 0.3, 6: 0.2}
        table = {
            k: {**{index: v * SCALES[index] for index in indices}, "gap-error": 0.05 * k}
            for k, v in values.items()
        }
        found = judged(table, {k: apart(k) for k in table}, Rule("vote"))
        object.__setattr__(found, "reason", " ".join([found.reason, *["because"] * words]))
        found.plot(tmp_path / "curves.png")
        assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
        figure = seen[-1]
        backend.FigureCanvasAgg(figure).draw()
        return figure

    return draw


SHOWN = (*JUDGES, "davies-bouldin", "inertia")
SCALES = dict(zip(SHOWN, 10.0 ** np.arange(6) * [-1, 1, 1, 1, 1, 1], strict=True))


def inches(figure: Any, artist: Any) -> np.ndarray:
    """Left, lower, right and upper end of what is drawn."""
    return artist.get_window_extent(figure.canvas.get_renderer()).extents / figure.dpi


def words_of(artist: Any) -> list[Any]:
    """The texts of a figure or of axes, beside those of ticks."""
    texts = [child for child in artist.get_children() if hasattr(child, "get_text")]
    labels = [artist.xaxis.label] if hasattr(artist, "xaxis") else []
    return [text for text in (*texts, *labels) if text.get_text()]


def test_each_curve_shows_its_scores_what_it_says_and_the_verdict(drawn: Any) -> None:
    figure = drawn(*SHOWN)
    assert len(figure.axes) == 6
    for i, axes in enumerate(figure.axes):
        verdict, *_, curve, dot = axes.get_lines()
        assert set(np.ravel(verdict.get_xdata())) == {3}  # all judges say so
        np.testing.assert_array_equal(curve.get_xdata(), [2, 3, 4, 5, 6])
        scale = SCALES[SHOWN[i]]
        np.testing.assert_allclose(curve.get_ydata(), scale * np.array([0.1, 0.9, 0.5, 0.3, 0.2]))
        [[says]] = [dot.get_xdata()]
        assert dot.get_ydata() == [curve.get_ydata()[list(curve.get_xdata()).index(says)]]
        assert axes.get_title("right") == f"says {says}"
        assert axes.get_xlim() == (1.5, 6.5)
        assert set(axes.get_xticks()) <= set(range(12))
        assert {side for side, spine in axes.spines.items() if spine.get_visible()} == {
            "left",
            "bottom",
        }
    names = [axes.get_title("left") for axes in figure.axes]
    assert names[:4] == [
        "Mixture BIC",
        "Gap statistic",
        "Calinski-Harabasz",
        "Squared silhouette",
    ]
    [bars] = figure.axes[1].collections
    np.testing.assert_allclose(
        [np.ptp(path.vertices[:, 1]) for path in bars.get_paths()], 0.1 * np.arange(2, 7)
    )


@pytest.mark.parametrize(("n", "words"), [(6, 0), (5, 40), (4, 0), (3, 100), (1, 0)])
def test_a_picture_is_two_columns_of_equal_curves_below_its_reason(drawn, n, words):
    """Nothing overlaps or is cut off, however long the reason is; only the last row says k."""
    figure = drawn(*SHOWN[:n], words=words)
    width, height = figure.get_size_inches()
    assert width == pytest.approx(8.4)
    boxes = np.array([inches(figure, axes) for axes in figure.axes])
    np.testing.assert_allclose(boxes[:, 2] - boxes[:, 0], boxes[0, 2] - boxes[0, 0])
    np.testing.assert_allclose(boxes[:, 3] - boxes[:, 1], boxes[0, 3] - boxes[0, 1])
    assert 3.3 < boxes[0, 2] - boxes[0, 0] < 3.6
    assert 1.2 < boxes[0, 3] - boxes[0, 1] < 2.1
    for i, box in enumerate(boxes):
        np.testing.assert_allclose(box[::2], boxes[i % 2, ::2])
        np.testing.assert_allclose(box[1::2], boxes[i - i % 2, 1::2])
    assert np.all(boxes[2:, 3] < boxes[:-2, 1])
    assert [bool(axes.get_xlabel()) for axes in figure.axes] == [i >= n - 2 for i in range(n)]
    texts = [text for artist in (figure, *figure.axes) for text in words_of(artist)]
    ends = np.array([inches(figure, text) for text in texts])
    assert np.all(ends[:, :2] >= 0)
    assert np.all(ends[:, 2:] <= [width, height])
    head = np.array([inches(figure, text) for text in figure.texts])
    assert np.all(head[1:, 3] <= head[:-1, 1] + 0.02)  # one line below the other
    assert head[-1, 1] >= boxes[0, 3] + 0.2  # and the titles of the curves between
    assert boxes[:, 1].min() >= 0.4  # room for the numbers and the label of k
    assert figure.texts[0].get_text() == "3 clusters"
    assert height == pytest.approx(0.85 + 0.2 * (len(figure.texts) - 1) + 2 * -(-n // 2))
    assert {len(t.get_text()) <= 115 for t in figure.texts} == {True}


def test_the_verdict_stands_back_and_what_an_index_says_stands_out(drawn: Any) -> None:
    """A pale line behind the curve, a dot larger than others; words smaller the more there are."""
    figure = drawn(*SHOWN)
    for axes in figure.axes:
        verdict, *_, curve, dot = axes.get_lines()
        assert verdict.get_zorder() < curve.get_zorder() <= dot.get_zorder()
        assert verdict.get_alpha() < 0.3
        assert 2 < curve.get_linewidth() * 3 < verdict.get_linewidth() < 6
        assert 3 < curve.get_markersize() < dot.get_markersize() / 2 + 0.1 < 5
        assert curve.get_markerfacecolor() == "white"
        assert dot.get_color() == verdict.get_color() != curve.get_color()
        ticks = axes.get_xticklabels()[0].get_fontsize()
        sizes = {text.get_text(): text.get_fontsize() for text in words_of(axes)}
        assert 7.5 < ticks < sizes.get("number of clusters k", 8.5) < 9
        assert {sizes[axes.get_title(side)] for side in ("left", "right")} == {9}
        assert axes.yaxis.get_offset_text().get_fontsize() < ticks
    title, *lines = figure.texts
    assert 1.4 < title.get_fontsize() / lines[0].get_fontsize() < 1.5
    assert {line.get_fontsize() for line in lines} == {9}
    assert figure.dpi >= 150
