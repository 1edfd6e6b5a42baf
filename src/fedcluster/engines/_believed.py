"""Checks of one site's answers, against the question and against what is believed of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster._bounds import Bounded, Box, Enclosed, LineBounds, raw_box
from fedcluster._exact import MOST_PLANES, is_canonical
from fedcluster.core import Floats, SiteInfo, Summary, Task
from fedcluster.engines._wire import LARGEST_NUMBER, WireError
from fedcluster.errors import SiteError

MOST_ROWS = 1e12
"""Rows that a site is believed to have, whatever is stated."""
GROWTH = 1.2
"""How many times as many rows as it first told of a site is believed to have."""
MOST_DRAWN = 20.0
"""How many times as much as all its rows those may weigh that a site draws from them."""
LARGEST_NOISY = 1e25
"""Largest number of an answer with noise: as many rows as a site may have, and their noise."""
SLACK = 1 + 1e-9
"""Factor, for rounding, by which a line may weigh more than all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Believed:
    """Bounds of what is believed of the sites' rows.

    Parameters
    ----------
    rows : mapping of str to float
        The most rows, or weight of rows, of the sites for which they are stated.
    first : mapping of str to float
        What sites first told of. Where nothing is stated, one may grow to ``GROWTH`` times that.
    ranges : mapping of str to (float, float)
        The public ranges of columns, before they are prepared.
    remedy : str
        What to do about sites that have more rows, with ``{rows}`` for SITE:ROWS.
    capped : bool
        Whether a site counts with no more rows than others, as in a robust fit.

    Examples
    --------
    >>> Believed(rows={"north": 5000}).check("north", 6000)
    Traceback (most recent call last):
    fedcluster.engines._agreement.WireError: it tells of 6,000 rows, where at most 5,000 are stated
    """

    rows: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    remedy: str = ""
    capped: bool = False

    def check(self, site: str, rows: float) -> None:
        """Refuse more rows of a site than are believed.

        Raises
        ------
        WireError
            With what to do.
        """
        most, said = self.rows.get(site), "at most {most:,.0f} are stated"
        if most is None:
            first = self.first.get(site, MOST_ROWS / GROWTH)
            most, said = GROWTH * first, f"it told of {first:,.0f} at first"
        if rows > most * SLACK:
            raise WireError(
                f"it tells of {rows:,.0f} rows, where {said.format(most=most)}"
                f"{self._remedy({site: rows})}"
            )

    def check_together(self, told: Mapping[str, float], spare: int) -> None:
        """Refuse a site that outweighs the others where nothing is stated of it.

        So many sites need not answer, and may lie: what one of them tells is held against the rows
        of the others without as many more, the largest of which nothing is stated. Who outweighs
        these puts the centres where it likes.

        Parameters
        ----------
        told : mapping of str to float
            What the sites told of their rows, now or at first.
        spare : int
            How many of all sites need not answer.

        Raises
        ------
        SiteError
            With what to do.

        Examples
        --------
        >>> told = {"east": 900, "north": 700, "west": 1e9}
        >>> Believed(remedy="state --rows {rows}").check_together(told, 1)
        Traceback (most recent call last):
        fedcluster.errors.SiteError: site 'west' tells of 1,000,000,000 rows, the others
        together of 1,600, and with a quorum it is not believed to outweigh them; state --rows
        east:900,north:700,west:1000000000
        >>> Believed(rows={"west": 1e9}).check_together(told, 1)
        """
        known = {**self.first, **told}
        unstated = {name: rows for name, rows in known.items() if name not in self.rows}
        if spare < 1 or self.capped:
            return
        for name in sorted(unstated, key=known.__getitem__, reverse=True):
            others = sum(rows for other, rows in known.items() if other != name)
            doubtful = sorted(rows for other, rows in unstated.items() if other != name)
            least = others - sum(doubtful[max(len(doubtful) - spare + 1, 0) :])
            if known[name] > least * SLACK:
                among = "together" if spare == 1 else f"without {spare - 1} of them"
                raise SiteError(
                    f"site {name!r} tells of {known[name]:,.0f} rows, the others {among} of "
                    f"{least:,.0f}, and with a quorum it is not believed to outweigh them"
                    f"{self._remedy(unstated)}"
                )

    def _remedy(self, rows: Mapping[str, float]) -> str:
        """Return what to do about sites that have so many rows."""
        said = ",".join(f"{name}:{most:.0f}" for name, most in sorted(rows.items()))
        return f"; {self.remedy.format(rows=said)}" if self.remedy else ""

    def box(self, task: Task, names: Sequence[str]) -> Box:
        """Return the box of the rows that a task is about, whose own columns have these names."""
        if task.preprocessor is None:
            return raw_box(names, self.ranges)
        if isinstance(task.preprocessor, Enclosed):
            return task.preprocessor.enclosing(self.ranges)
        return Box.unbounded(task.preprocessor.n_columns_out)


NOTHING_STATED = Believed()


def sized(site: SiteInfo, answers: Sequence[Summary], believed: Believed) -> SiteInfo:
    """Return a site with what its answer to `SiteSize`, the first of a reply, says."""
    if not answers or len(answers[0].weights) != 1:
        raise WireError("it does not say in one line what it holds")
    size = answers[0]
    _check_numbers(size)
    n_rows, weight = float(size.sums.max(initial=0.0)), float(size.weights[0])
    if n_rows != size.sums.min(initial=n_rows) or not n_rows.is_integer() or n_rows > MOST_ROWS:
        raise WireError(f"it claims {n_rows:g} rows, or not as many of each column: not believed")
    for what, before, now in (("rows", site.n_rows, n_rows), ("weight", site.weight, weight)):
        if before is not None and before != now:
            raise WireError(f"it told of {before:g} {what} before and tells of {now:g} now")
    believed.check(site.name, max(n_rows, weight))
    return replace(site, n_columns=size.sums.shape[1], n_rows=n_rows, weight=weight)


def check_answer(
    task: Task,
    summary: Summary,
    site: SiteInfo,
    believed: Believed,
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
        What the site tells of itself and its rows.
    believed : Believed
        The bounds of what is believed.
    columns : sequence of str, optional
        The columns that were asked about; by default all that the site told of.

    Raises
    ------
    WireError
        If it is not believed.
    """
    _check_shape(task, summary, site.n_columns or 0)
    if task.noise is not None:
        _check_noisy(summary)
        return
    _check_numbers(summary)
    bounds = _bounds(task, site, believed, columns)
    often = MOST_DRAWN if task.resampled is not None else 1.0
    most = often * max(site.weight or 0.0, site.n_rows or 0.0)
    _check_weights(summary.weights, most, disjoint=bounds is not None and bounds.disjoint)
    if bounds is not None and (beyond := bounds.beyond(summary)):
        raise WireError(f"it tells of {beyond}: the ranges of the columns are stated")


def _bounds(
    task: Task, site: SiteInfo, believed: Believed, columns: Sequence[str] | None
) -> LineBounds | None:
    """Return the bounds of an answer; None of a step that knows none."""
    if not isinstance(task.step, Bounded):
        return None
    names = columns or [column.name for column in site.columns]
    given = [*names, *[""] * ((site.n_columns or 0) - len(names))]
    return task.step.line_bounds(task.state, believed.box(task, given))


def _check_shape(task: Task, summary: Summary, n_columns: int) -> None:
    """Check that an answer has the shape that its step declares for the rows of the site."""
    given = task.preprocessor
    width = n_columns if given is None else given.n_columns_out
    try:
        lines, p = task.step.answer_shape(task.state, width)
    except Exception as error:
        raise WireError(f"the step does not tell the shape of an answer: {error!r}") from error
    if summary.sums.shape[1] != p or (lines is not None and len(summary.sums) != lines):
        wanted = f"({'any' if lines is None else lines}, {p})"
        raise WireError(f"sums of shape {summary.sums.shape}, where {wanted} was expected")


def _check_numbers(summary: Summary) -> None:
    """Check that numbers are finite, and will be in sums, products and means of all sites."""
    if not summary.is_finite:
        raise WireError("it holds NaN or infinity")
    if (summary.weights < 0).any():
        raise WireError(f"a weight is negative: {summary.weights.min():g}")
    if summary.sums[summary.weights == 0].any():
        raise WireError("a line of weight 0 has sums")
    if summary.rest is not None and not _is_rest(summary):
        raise WireError("what rounding took of its sums is not what rounding takes")
    largest = np.maximum(np.abs(summary.sums).max(axis=1, initial=0.0), summary.weights)
    if (largest > LARGEST_NUMBER * np.minimum(summary.weights, 1.0)).any():
        raise WireError(f"it holds {largest.max():g}, or as much for each row: not believed")


def _is_rest(summary: Summary) -> bool:
    """Return whether a total is canonical: no number more than half a last digit of that before."""
    if len(summary.planes) > MOST_PLANES or not np.isfinite(summary.planes).all():
        return False
    return is_canonical(summary.planes)


def _check_noisy(summary: Summary) -> None:
    """Check that numbers with noise are finite and sane; weights may be negative."""
    if summary.rest is not None:
        raise WireError("an answer with noise is of one site, and this one is a total")
    if not summary.is_finite:
        raise WireError("it holds NaN or infinity")
    largest = max(np.abs(each).max(initial=0.0) for each in (summary.sums, summary.weights))
    if largest > LARGEST_NOISY:
        raise WireError(f"it holds {largest:g}: not believed")


def _check_weights(weights: Floats, at_most: float, *, disjoint: bool) -> None:
    if weights.size and weights.max() > at_most * SLACK:
        raise WireError(
            f"a line weighs {weights.max():g}, but all rows of the site together {at_most:g}"
        )
    if disjoint and weights.sum() > at_most * SLACK:
        raise WireError(
            f"its lines weigh {weights.sum():g} together, but all rows of the site {at_most:g}"
        )
