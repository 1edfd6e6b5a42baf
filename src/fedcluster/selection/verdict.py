"""Verdict on the number of clusters: the best k by each index, the vote, and the reason."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, Result, State
from fedcluster.errors import listed
from fedcluster.kernels import nearest
from fedcluster.metrics.indices import CHOOSING, INDICES, JUDGES, METRICS
from fedcluster.recipes.specifications import Rule
from fedcluster.selection._likelihood import Likeliest
from fedcluster.texts import Html, Table

Scores = Mapping[int, Mapping[str, float]]


INK, PALE_INK, LINE, CHOSEN = "#1d2733", "#6b7683", "#3b6fb6", "#e0853a"


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Number of clusters that was chosen, the reason, and all scores and clusterings.

    Parameters
    ----------
    n_clusters : int
        The verdict.
    rule : str
        The rule.
    reason : str
        The reason, in words.
    warnings : tuple of str
        Doubts about the verdict.
    says : mapping of str to int
        The best k by each index.
    table : mapping of int to mapping of str to float
        All indices for each k, including the ``gap`` and its standard error ``gap-error``; nan if
        an index is undefined. By likelihood, the largest BIC of a mixture with k clusters.
    results : mapping of int to Result
        The clustering with each k, so that none need be fitted again; by likelihood, with the
        chosen one, and k-means with one more and one less.
    replicates : tuple of Result
        By likelihood, the clusterings of bootstrap samples that were asked for.
    gaps : (ndarray of shape (k,), ndarray of shape (k,)), optional
        With these, if clusters are sets of components: the neighbour of each and the density
        between both.
    """

    n_clusters: int
    rule: str
    reason: str
    warnings: tuple[str, ...]
    says: Mapping[str, int]
    table: Scores = field(repr=False)
    results: Mapping[int, Result] = field(repr=False)
    replicates: tuple[Result, ...] = field(default=(), repr=False)
    gaps: tuple[NDArray[np.intp], Floats] | None = field(default=None, repr=False)

    def plot(self, path: str | Path) -> None:
        """Draw the curves of the indices into a PNG; needs matplotlib."""
        _draw(self, Path(path))

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the verdict, and each index for each k."""
        caption = f"{self.n_clusters} cluster{'' if self.n_clusters == 1 else 's'}. {self.reason}"
        rows = [self._html_line(k) for k in self.table]
        return Table(caption, ["k", *self.says], rows).plain_html()

    def _html_line(self, k: int) -> list[Any]:
        """Return a line of the table: a k and all its indices, in bold for those that choose it."""
        shown = [
            (says == k, f"{self.table[k].get(i, np.nan):.5g}") for i, says in self.says.items()
        ]
        name = f"{k} (chosen)" if k == self.n_clusters else k
        return [name, *(Html(f"<strong>{x}</strong>") if own else x for own, x in shown)]


def judged(scores: Scores, results: Mapping[int, Result], rule: Rule) -> Selection:
    """Return the verdict on clusterings and their indices.

    A k with empty clusters is never chosen, unless every k has some. In a vote, each judge names
    its best k, and the one named most often is chosen; in a tie, the first judge's. A judge whose
    best is the largest k has not found a best yet: it abstains, unless all do.
    """
    full = [k for k, result in results.items() if (result.state.weights > 0).all()]
    table = {k: scores[k] for k in full or results}
    says = {index: k for index in INDICES if (k := _says(index, table, rule)) is not None}
    if rule.name == "vote":
        k, voters = _vote({j: says[j] for j in JUDGES if j in says}, sorted(results))
    else:
        k, voters = says.get(rule.name, min(table)), (rule.name,)
    silent = [j for j in JUDGES if j in says and j not in voters] if rule.name == "vote" else []
    return Selection(
        n_clusters=k,
        rule=rule.name if rule.pick == "best" else f"{rule.name}, elbow",
        reason=because(k, says, voters, results, rule.name),
        warnings=doubts(k, says, voters, silent, sorted(results), len(table)),
        says=says,
        table=scores,
        results=results,
    )


def judged_by_likelihood(
    verdict: Likeliest,
    result: Result,
    warnings: tuple[str, ...],
    tried: Collection[int],
    beside: Mapping[int, Result],
    *,
    most_shown: int = 12,
) -> Selection:
    """Return the verdict of mixtures, with the clustering that followed, and those beside it.

    ``most_shown``: number of ks that a table by likelihood always shows.
    """
    k, most = verdict.n_clusters, max(most_shown, verdict.n_clusters, *verdict.by_k, 0)
    shown = {k, *verdict.by_k, *(each for each in tried if each <= most)}
    return Selection(
        n_clusters=k,
        rule="likelihood",
        reason=verdict.reason,
        warnings=warnings,
        says={"likelihood": k},
        table={v: {"likelihood": verdict.by_k.get(v, float("nan"))} for v in sorted(shown)},
        results={**beside, k: result},
    )


def _vote(says: Mapping[str, int], tried: Sequence[int]) -> tuple[int, tuple[str, ...]]:
    """Return the verdict (the smallest k if no judge names one) and the judges that counted."""
    if not says:
        return tried[0], ()
    voters = {judge: k for judge, k in says.items() if k < tried[-1]} or dict(says)
    votes = Counter(voters.values())
    most = max(votes.values())
    return next(k for k in voters.values() if votes[k] == most), tuple(voters)


def _says(index: str, table: Scores, rule: Rule) -> int | None:
    """Return the best k by an index; None if it is undefined."""
    ks = [k for k in table if not np.isnan(table[k].get(index, np.nan))]
    if not ks:
        return None
    values = np.array([table[k][index] for k in ks])
    rising = index in ("likelihood", "gap") or bool(METRICS[index].maximise)
    loss = -values if rising else values
    if index == "inertia" or (index == rule.name and rule.pick == "elbow"):
        return ks[_elbow(np.array(ks, dtype=np.float64), loss)]
    if index == "gap":
        best = int(loss.argmin())
        return ks[int(np.argmax(loss <= loss[best] + table[ks[best]]["gap-error"]))]
    return ks[int(loss.argmin())]


def _elbow(ks: Floats, loss: Floats) -> int:
    """Return where a falling curve is farthest below the line between its ends, or the first k.

    Examples
    --------
    >>> _elbow(np.arange(1.0, 6.0), np.array([100.0, 30.0, 20.0, 15.0, 12.0]))
    1
    """
    if len(ks) < 3 or not np.isfinite(loss).all():
        return int(loss.argmin())
    line = loss[0] + (loss[-1] - loss[0]) * (ks - ks[0]) / (ks[-1] - ks[0])
    below = line - loss
    below[[0, -1]] = 0.0  # 0 up to rounding
    return int(below.argmax())


def because(
    k: int,
    says: Mapping[str, int],
    voters: Collection[str],
    results: Mapping[int, Result],
    rule: str,
) -> str:
    """Return the reason for k in one or two sentences.

    Parameters
    ----------
    k : int
        The verdict.
    says : mapping of str to int
        The best k by each index.
    voters : collection of str
        The indices that voted.
    results : mapping of int to Result
        The clusterings.
    rule : str
        The rule's name.
    """
    if not any(voter in says for voter in voters):
        return "No index says anything: the rows are too few or too much alike. The smallest k."
    if rule != "vote":
        return f"{_capital(CHOOSING[rule].label)} says {k}."
    by_k: dict[int, list[str]] = {k: []}
    for voter in voters:
        by_k.setdefault(says[voter], []).append(CHOOSING[voter].label)
    said = [f"{listed(names)} {_say(names)} {other}" for other, names in by_k.items()]
    tie = len(by_k) > 1 and max(len(by_k[j]) for j in by_k if j != k) == len(by_k[k])
    broken = f"; in a tie {by_k[k][0]} decides" if tie else ""
    coarser = sorted((j for j in by_k if 1 < j < k), key=lambda j: -len(by_k[j]))
    nests = [_nest(results[j].state, results[k].state) for j in coarser]
    return " ".join([f"{_capital(', '.join(said))}{broken}.", *filter(None, nests[:1])])


def doubts(
    k: int,
    says: Mapping[str, int],
    voters: Collection[str],
    abstaining: Sequence[str],
    tried: Sequence[int],
    full: int,
) -> tuple[str, ...]:
    """Return doubts about the verdict k, one sentence each."""
    sentences = []
    if abstaining:
        names = [CHOOSING[index].label for index in abstaining]
        sentences.append(
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} still improving at "
            f"k = {tried[-1]}, the largest that was tried, and had no vote; try larger ones"
        )
    others = sorted({says[voter] for voter in voters if voter in says and 1 < says[voter] != k})
    if others and len(voters) > 1:
        sentences.append(
            f"the indices disagree: {listed([str(each) for each in [k, *others]])} clusters are "
            "each the best by some; look at the curves"
        )
    if k == tried[-1] > 1:
        sentences.append(f"k = {k} is the largest that was tried; try larger ones")
    if k == tried[0] > 1:
        sentences.append(f"k = {k} is the smallest that was tried; try smaller ones")
    if full < len(tried):
        sentences.append(
            f"{len(tried) - full} of {len(tried)} clusterings have clusters without rows and "
            "were left aside"
        )
    return tuple(sentences)


def _nest(coarse: State, fine: State, *, nested: float = 0.02) -> str:
    """Return a sentence if the clusters of one clustering are groups of those of the other.

    ``nested``: share of the squares between clusters that may be lost if small clusters are merged
    into large.
    """
    few, many, weights = len(coarse.centers), len(fine.centers), fine.weights
    groups, _ = nearest(fine.centers, coarse.centers)
    sizes = np.bincount(groups, weights, few)
    if not (sizes > 0).all():
        return ""
    means = np.stack([np.bincount(groups, weights * x, few) for x in fine.centers.T], axis=1)
    lost = sizes @ ((means / sizes[:, None] - coarse.centers) ** 2).sum(axis=1)
    overall = weights @ fine.centers / weights.sum()
    between = weights @ ((fine.centers - overall) ** 2).sum(axis=1)
    if lost > nested * between:
        return ""
    return f"The {many} clusters lie in {few} super-clusters."


def _say(names: Sequence[str]) -> str:
    return "says" if len(names) == 1 else "say"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _draw(selection: Selection, path: Path) -> None:
    """Draw into a PNG the curves of the judges, the rule and two more, with their best k.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    from matplotlib.figure import Figure  # optional extra

    shown = dict.fromkeys([*JUDGES, "davies-bouldin", selection.rule.split(",")[0], "inertia"])
    indices = [index for index in shown if index in selection.says]
    reason = textwrap.wrap(selection.reason, 115)  # Number of characters in a line of the reason.
    lines = -(-len(indices) // 2)
    head, width, height = 0.85 + 0.2 * len(reason), 8.4, 0.85 + 0.2 * len(reason) + 2.0 * lines
    figure = Figure(figsize=(width, height), dpi=160, facecolor="white")
    grid = figure.add_gridspec(
        lines, 2, left=0.085, right=0.98, top=1 - head / height, bottom=0.45 / height,
        wspace=0.2, hspace=0.5,
    )  # fmt: skip
    for i, index in enumerate(indices):
        axes = figure.add_subplot(grid[i // 2, i % 2])
        _draw_curve(axes, selection, index)
        # Distances between ticks, in powers of ten.
        axes.locator_params(
            axis="x", integer=True, nbins=10, steps=(1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
        )
        axes.set_xlabel("number of clusters k" if i >= len(indices) - 2 else "")
        axes.xaxis.label.set(color=PALE_INK, fontsize=8.5)
    n = selection.n_clusters
    title = f"{n} cluster{'' if n == 1 else 's'}"
    figure.text(0.02, 1 - 0.32 / height, title, fontsize=13, fontweight="bold", color=INK)
    for i, text in enumerate(reason):
        figure.text(0.02, 1 - (0.56 + 0.2 * i) / height, text, fontsize=9, color=PALE_INK)
    figure.savefig(path, format="png", metadata={"Software": None})


def _draw_curve(axes: Any, selection: Selection, index: str) -> None:
    """Draw one index over k: a line, a full dot at its best k, the verdict as a faint line."""
    ks = np.array(sorted(selection.table))
    values = np.array([selection.table[k].get(index, np.nan) for k in ks])
    values = np.where(np.isfinite(values), values, np.nan)
    says = selection.says[index]
    axes.axvline(selection.n_clusters, color=CHOSEN, linewidth=5, alpha=0.22, zorder=0)
    if index == "gap":
        errors = [selection.table[k]["gap-error"] for k in ks]
        axes.errorbar(ks, values, errors, fmt="none", ecolor=PALE_INK, elinewidth=0.9, capsize=2)
    axes.plot(ks, values, "-o", color=LINE, linewidth=1.3, markersize=3.2, markerfacecolor="white")
    axes.plot([says], values[ks == says], "o", color=CHOSEN, markersize=6.5)
    axes.set_xlim(ks[0] - 0.5, ks[-1] + 0.5)
    name = _capital(CHOOSING[index].label.removeprefix("the "))
    axes.set_title(name, fontsize=9, color=INK, loc="left", pad=4)
    axes.set_title(f"says {says}", fontsize=9, color=CHOSEN, loc="right", pad=4)
    axes.tick_params(labelsize=8, colors=PALE_INK, length=2.5)
    axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 7))
    axes.yaxis.get_offset_text().set(fontsize=7.5, color=PALE_INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#d9dde3")
