"""Validation of replies: the one place that decides which answers of sites count.

`check_answer` checks an answer against its question, the number of rows of the site, and the stated
ranges of columns. `implausible` compares the answers of a round with each other.
`without_too_large` is the last check before a server step, whatever the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster.core import MOST_FOR_A_ROW, Answers, SiteInfo, Summary, Task
from fedcluster.core.ranges import Bounded, Box, Enclosed, raw_box
from fedcluster.errors import SiteError, WireError

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ReplyBounds:
    """Bounds on the sites' rows, against which replies are checked.

    Parameters
    ----------
    rows : mapping of str to float
        The largest number, or weight, of rows of each site for which one is stated.
    first : mapping of str to float
        The number of rows that each site first reported. If none is stated, a site may grow to
        ``growth`` times this number.
    ranges : mapping of str to (float, float)
        The public ranges of columns before preparation.
    remedy : str
        Advice for sites with more rows; ``{rows}`` stands for SITE:ROWS.
    capped : bool
        Whether no site counts with more rows than the others, as in a robust fit.

    Examples
    --------
    >>> ReplyBounds(rows={"north": 5000}).check("north", 6000)
    Traceback (most recent call last):
    fedcluster.errors.WireError: it tells of 6,000 rows, where at most 5,000 are stated
    """

    rows: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    remedy: str = ""
    capped: bool = False
    most_rows = 1e12  # largest number of rows of a site, whatever is stated
    growth = 1.2  # largest factor by which a site may grow after first reporting its number of rows
    slack = 1 + 1e-9  # factor, allowing for rounding, by which a line may weigh more than all rows

    def check(self, site: str, rows: float) -> None:
        """Raise an error if a site has more rows than its bound.

        Raises
        ------
        WireError
            With advice on what to do.
        """
        if site in self.rows:
            most = self.rows[site]
            bound = f"at most {most:,.0f} are stated"
        else:
            first = self.first.get(site, self.most_rows / self.growth)
            most, bound = self.growth * first, f"it told of {first:,.0f} at first"
        if rows > most * self.slack:
            remedy = self._remedy({site: rows})
            raise WireError(f"it tells of {rows:,.0f} rows, where {bound}{remedy}")

    def check_together(self, sizes: Mapping[str, float], spare: int) -> None:
        """Raise an error if a site without a stated bound outweighs the others.

        The ``spare`` sites that need not answer may lie. So each site's size is compared with the
        rows of the others, except the ``spare`` - 1 largest ones without a stated bound. A site
        that outweighs these could put the centres anywhere.

        Parameters
        ----------
        sizes : mapping of str to float
            The number of rows of each site, as reported now or at first.
        spare : int
            The number of sites that need not answer.

        Raises
        ------
        SiteError
            With advice on what to do.

        Examples
        --------
        >>> sizes = {"east": 900, "north": 700, "west": 1e9}
        >>> ReplyBounds(remedy="state --rows {rows}").check_together(sizes, 1)
        Traceback (most recent call last):
        fedcluster.errors.SiteError: site 'west' tells of 1,000,000,000 rows, the others
        together of 1,600, and with a quorum it is not believed to outweigh them; state --rows
        east=900,north=700,west=1000000000
        >>> ReplyBounds(rows={"west": 1e9}).check_together(sizes, 1)
        """
        known = {**self.first, **sizes}
        unstated = {name: rows for name, rows in known.items() if name not in self.rows}
        if spare < 1 or self.capped:
            return
        for name in sorted(unstated, key=known.__getitem__, reverse=True):
            others = sum(rows for other, rows in known.items() if other != name)
            doubtful = sorted(rows for other, rows in unstated.items() if other != name)
            least = others - sum(doubtful[max(len(doubtful) - spare + 1, 0) :])
            if known[name] > least * self.slack:
                among = "together" if spare == 1 else f"without {spare - 1} of them"
                raise SiteError(
                    f"site {name!r} tells of {known[name]:,.0f} rows, the others {among} of "
                    f"{least:,.0f}, and with a quorum it is not believed to outweigh them"
                    f"{self._remedy(unstated)}"
                )

    def _remedy(self, rows: Mapping[str, float]) -> str:
        """Return advice on sites with these numbers of rows."""
        stated = ",".join(f"{name}={most:.0f}" for name, most in sorted(rows.items()))
        return f"; {self.remedy.format(rows=stated)}" if self.remedy else ""

    def box(self, task: Task, names: Sequence[str]) -> Box:
        """Return the box of a task's rows, whose raw columns have these names."""
        if task.preprocessor is None:
            return raw_box(names, self.ranges)
        if isinstance(task.preprocessor, Enclosed):
            return task.preprocessor.enclosing(self.ranges)
        return Box.unbounded(task.preprocessor.n_columns_out)


NOTHING_STATED = ReplyBounds()


def sized(site: SiteInfo, answers: Sequence[Summary], bounds: ReplyBounds) -> SiteInfo:
    """Return a site with the size from its answer to `SiteSize`, the first one of a reply."""
    if not answers or len(answers[0].weights) != 1:
        raise WireError("it does not say in one line what it holds")
    size = answers[0]
    _check_numbers(size)
    n_rows, weight = float(size.sums.max(initial=0.0)), float(size.weights[0])
    if (
        n_rows != size.sums.min(initial=n_rows)
        or not n_rows.is_integer()
        or n_rows > ReplyBounds.most_rows
    ):
        raise WireError(f"it claims {n_rows:g} rows, or not as many of each column: not believed")
    for what, before, now in (("rows", site.n_rows, n_rows), ("weight", site.weight, weight)):
        if before is not None and before != now:
            raise WireError(f"it told of {before:g} {what} before and tells of {now:g} now")
    bounds.check(site.name, max(n_rows, weight))
    return replace(site, n_columns=size.sums.shape[1], n_rows=n_rows, weight=weight)


def check_answer(
    task: Task,
    summary: Summary,
    site: SiteInfo,
    bounds: ReplyBounds,
    columns: Sequence[str] | None,
) -> None:
    """Check an answer of a site.

    Parameters
    ----------
    task : Task
        The question.
    summary : Summary
        The answer.
    site : SiteInfo
        The site's metadata.
    bounds : ReplyBounds
        The bounds against which the answer is checked.
    columns : sequence of str, optional
        The columns that were asked about; by default all columns of the site.

    Raises
    ------
    WireError
        If the answer is not accepted.
    """
    _check_shape(task, summary, site.n_columns or 0)
    if task.noise is not None:
        _check_noisy(summary)
        return
    _check_numbers(summary)
    of_lines = None
    if isinstance(task.step, Bounded):
        names = columns or [column.name for column in site.columns]
        every = [*names, *[""] * ((site.n_columns or 0) - len(names))]
        of_lines = task.step.line_bounds(task.state, bounds.box(task, every))
    # Largest ratio of a bootstrap sample's weight to that of all rows of its site.
    often, weights = 20.0 if task.resampled is not None else 1.0, summary.weights
    most = often * max(site.weight or 0.0, site.n_rows or 0.0)
    if weights.max(initial=0.0) > most * ReplyBounds.slack:
        raise WireError(
            f"a line weighs {weights.max():g}, but all rows of the site together {most:g}"
        )
    if of_lines is not None and of_lines.disjoint and weights.sum() > most * ReplyBounds.slack:
        raise WireError(
            f"its lines weigh {weights.sum():g} together, but all rows of the site {most:g}"
        )
    if of_lines is not None and (beyond := of_lines.beyond(summary)):
        raise WireError(f"it tells of {beyond}: the bounds of the columns are stated")


def _check_shape(task: Task, summary: Summary, n_columns: int) -> None:
    """Check that an answer has the shape that its step declares for the rows of the site."""
    how = task.preprocessor
    try:
        lines, p = task.step.answer_shape(task.state, how.n_columns_out if how else n_columns)
    except Exception as error:
        raise WireError(f"the step does not tell the shape of an answer: {error!r}") from error
    if summary.sums.shape[1] != p or (lines is not None and len(summary.sums) != lines):
        wanted = f"({'any' if lines is None else lines}, {p})"
        raise WireError(f"sums of shape {summary.sums.shape}, where {wanted} was expected")


def _check_numbers(summary: Summary) -> None:
    """Check that numbers are finite, and remain so in sums, products and means of all sites."""
    if not summary.is_finite:
        raise WireError("it holds NaN or infinity")
    if (summary.weights < 0).any():
        raise WireError(f"a weight is negative: {summary.weights.min():g}")
    if summary.sums[summary.weights == 0].any():
        raise WireError("a line of weight 0 has sums")
    largest = np.maximum(np.abs(summary.sums).max(axis=1, initial=0.0), summary.weights)
    if (largest > MOST_FOR_A_ROW * np.minimum(summary.weights, 1.0)).any():
        raise WireError(f"it holds {largest.max():g}, or as much for each row: not believed")


def _check_noisy(summary: Summary) -> None:
    """Check that numbers with noise are finite and not too large; weights may be negative."""
    if not summary.is_finite:
        raise WireError("it holds NaN or infinity")
    largest = max(np.abs(each).max(initial=0.0) for each in (summary.sums, summary.weights))
    # Largest number in an answer with noise: as many rows as a site may have, with their noise.
    if largest > 1e25:
        raise WireError(f"it holds {largest:g}: not believed")


def implausible(
    answers: Mapping[str, Sequence[Summary]], *, factor: float = 1e17
) -> dict[str, str]:
    """Return the sites whose sums per weight are far larger than those of the others.

    Finite numbers can be so large that all centres follow them and the other sites' answers about
    such centres overflow. So each column of each answer is compared with the lower median of the
    sites.

    Parameters
    ----------
    answers : mapping of str to sequence of Summary
        The answers to the tasks of a round, by site; for each task, they may differ in the number
        of lines only.
    factor : float
        Largest ratio of a site's sum per row to that of other sites, or to 1.

    Returns
    -------
    dict of str to str
        The sites whose answers are not accepted, with the reason.

    Examples
    --------
    >>> sums = {"a": 3.0, "b": 5.0, "c": 1e99}
    >>> implausible({name: [Summary(np.array([[x]]), np.ones(1))] for name, x in sums.items()})
    {'c': 'it says 1e+99 for a row, where others say 5: not believed'}
    """
    why: dict[str, str] = {}
    for summaries in zip(*answers.values(), strict=True):
        largest = {
            name: np.abs(summary.sums[lines] / summary.weights[lines, None]).max(axis=0)
            for name, summary in zip(answers, summaries, strict=True)
            if (lines := summary.weights > 0).any()
        }
        if len(largest) < 2:
            continue
        median = np.sort(list(largest.values()), axis=0)[(len(largest) - 1) // 2]
        for name, for_a_row in largest.items():
            beyond = for_a_row > factor * np.maximum(median, 1.0)
            if beyond.any():
                j = int(beyond.argmax())
                why[name] = (
                    f"it says {for_a_row[j]:g} for a row, where others say {median[j]:g}: "
                    "not believed"
                )
    return why


def without_too_large(tasks: Sequence[Task], answers: list[Answers], spare: int) -> list[Answers]:
    """Return answers without the sites whose sums are too large, if enough others remain.

    Parameters
    ----------
    tasks : sequence of Task
        The questions of a round.
    answers : list of Answers
        The answers of the sites to each.
    spare : int
        The number of sites that the run can do without, unless the answers allow more.

    Raises
    ------
    SiteError
        If too few remain; the error names the first of these sites and the question.
    """
    large: dict[str, str] = {}
    for task, each in zip(tasks, answers, strict=True):
        for name in each.too_large():
            where = f"round {task.state.round + 1}, {type(task.step).__name__}"
            why = f"its sums are not finite, or beyond {MOST_FOR_A_ROW:g} for a row"
            large.setdefault(name, f"site {name!r}, {where}: {why}")
    if len(large) > max(spare, answers[0].n_spare):
        why = next(iter(large.values()))
        raise SiteError(f"{why}: scale down its columns, or look for values that are wrong")
    for name, why in large.items():
        LOGGER.warning("%s; left out", why)
        answers = [each.without(name) for each in answers]
    return answers
