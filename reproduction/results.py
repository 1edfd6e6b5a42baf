"""What was published beside what we find, and what that says; the verdict is always computed.

A paper's script makes `Cell`s, one number each, and gathers those of a figure in a `Row`.
`reproduce` runs a paper's figures; `reproduction.report` writes the rows of all papers to
RESULTS.md.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import style
from numpy.typing import ArrayLike, NDArray

from reproduction.pictures import STYLE
from reproduction.report import gather, home_of, markdown, write_made, write_rows

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "shared" / "reference"
"""Published data that cannot be made anew; they lie beside the clone, or are not at hand."""

Verdict = Literal["agrees", "agrees in shape", "differs", "stand-in", "ours alone", "ran"]
"""The last is all that few runs can say."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or median of runs: its value, the runs' standard deviation, their number.

    A number without a known deviation, or of a computation without chance, has no error.
    """

    value: float
    spread: float = math.nan
    runs: int = 1
    is_median: bool = False
    of_quartiles: bool = False

    @classmethod
    def mean(cls, sample: ArrayLike) -> Estimate:
        runs = np.asarray(sample, float)
        return cls(float(runs.mean()), _deviation(runs), len(runs))

    @classmethod
    def median(cls, sample: ArrayLike) -> Estimate:
        runs = np.asarray(sample, float)
        return cls(float(np.median(runs)), _deviation(runs), len(runs), True)

    @classmethod
    def quartiles(cls, median: float, q25: float, q75: float, runs: int) -> Estimate:
        """A published median; the deviation is that of a normal sample with these quartiles."""
        return cls(median, (q75 - q25) / 1.349, runs, True, True)

    @property
    def error(self) -> float:
        """The standard error; that of a normal sample's median is sqrt(pi / 2) times its mean's."""
        if math.isnan(self.spread):
            return 0.0
        return (
            self.spread / math.sqrt(self.runs) * (math.sqrt(math.pi / 2) if self.is_median else 1)
        )

    def __str__(self) -> str:
        return number(self.value) + ("" if math.isnan(self.spread) else f" ± {self.spread:.2g}")


def _deviation(runs: NDArray[np.float64]) -> float:
    return float(runs.std(ddof=1)) if len(runs) > 1 else math.nan


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far ours may lie from the published: so many standard errors, plus so much."""

    errors: float = 3.0
    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        errors = f"{self.errors:g} SE" if self.errors else ""
        absolute = f"{self.absolute:.2g}" if self.absolute else ""
        relative = f"{100 * self.relative:g} %" if self.relative else ""
        return " + ".join(filter(None, [errors, absolute, relative])) or "nothing"


EXACT = Tolerance(0.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One number: what it is of, ours, the published one if there is one, our default recipe's."""

    of: Mapping[str, Any]
    ours: Estimate
    published: Estimate | None = None
    tolerance: Tolerance = Tolerance()
    recipe: Estimate | None = None

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        return math.hypot(self.ours.error, self.published.error if self.published else 0.0)

    @property
    def deviation(self) -> float | None:
        """Ours minus the published, in standard errors; None without a number or an error."""
        if self.published is None or not self.error:
            return None
        return (self.ours.value - self.published.value) / self.error

    @property
    def within(self) -> bool | None:
        """Whether ours lies within the tolerance; None where nothing is published."""
        if self.published is None:
            return None
        return bool(abs(self.ours.value - self.published.value) <= self.allowed)

    @property
    def allowed(self) -> float:
        """How far ours may lie from the published."""
        t = self.tolerance
        value = abs(self.published.value) if self.published else 0.0
        return t.errors * self.error + t.absolute + t.relative * value

    @property
    def expected(self) -> float:
        """The chance that a perfect reproduction lies within the tolerance, by a normal error."""
        return math.erf(self.allowed / self.error / math.sqrt(2)) if self.error else 1.0

    @property
    def error_is_of(self) -> str:
        """Whose runs the standard error of the difference stands for."""
        if self.published is None or not self.error:
            return ""
        if not self.published.error:
            return "our runs alone"
        if not self.ours.error:
            return "the paper's runs alone"
        if self.published.of_quartiles:
            return "our runs and the published quartiles"
        same = self.published.spread == self.ours.spread
        return "our runs, for the paper's too" if same else "our runs and the paper's"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of RESULTS.md, about one figure or table."""

    paper: str
    figure: str
    what: str
    published: str
    ours: str
    deviation_in_se: float | None
    verdict: Verdict
    reason: str = ""
    files: str = ""
    minutes: float = 0.0
    within: str = ""
    expected: str = ""
    allowed: str = ""
    error_is_of: str = ""
    runs: str = ""
    exact: bool = False
    """Whether few runs must give the published numbers, too: no chance is in them."""

    @classmethod
    def of(
        cls,
        figure: str,
        what: str,
        cells: Sequence[Cell] = (),
        *,
        required: float = 1.0,
        shape: bool | None = None,
        reason: str = "",
        files: Iterable[str] = (),
        expected: float | None = None,
        stand_in: bool = False,
    ) -> Row:
        """Judge a figure by its cells: the share within their tolerances that is required.

        ``shape`` says whether the paper's conclusion holds (order, direction), where the script
        tests it; ``expected`` how many cells of a perfect reproduction lie within their
        tolerances, where that is not what normal errors of the means say; ``stand_in`` that the
        paper's rows are not public, so that its numbers cannot be compared with.
        """
        judged = [c for c in cells if c.published]
        if expected is None:
            expected = sum(c.expected for c in judged)
        return cls(
            paper="",
            figure=figure,
            what=what,
            published=_in_short([c.published for c in judged if c.published]),
            ours=_in_short([c.ours for c in cells]),
            deviation_in_se=max(
                (c.deviation for c in judged if c.deviation is not None), key=abs, default=None
            ),
            verdict="stand-in" if stand_in else verdict(cells, required, shape),
            reason=reason,
            files=" ".join(files),
            within=f"{sum(bool(c.within) for c in judged)} of {len(judged)}" if judged else "",
            expected=f"{expected:.1f}" if judged else "",
            allowed=_tolerances([c.tolerance for c in judged]),
            error_is_of=_each(c.error_is_of for c in judged),
            runs=_range([c.ours.runs for c in cells]),
            exact=bool(judged) and all(c.tolerance == EXACT for c in judged),
        )

    @classmethod
    def left_out(cls, figure: str, what: str, reason: str) -> Row:
        """A figure that cannot be made here."""
        return cls("", figure, what, "", "not run", None, "ours alone", reason)


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _tolerances(given: Iterable[Tolerance]) -> str:
    """Each of them, or the least and the largest, if they are bands of single numbers."""
    different = sorted(set(given), key=lambda t: (t.absolute, t.errors, t.relative))
    if len(different) <= 3:
        return "; ".join(map(str, different))
    return f"{different[0]} to {different[-1]}, a band for each number"


def _range(numbers: Sequence[int]) -> str:
    """The least and the largest, if anything was run more than once."""
    least, most = min(numbers, default=1), max(numbers, default=1)
    return "" if most == 1 else str(most) if least == most else f"{least} to {most}"


def verdict(cells: Sequence[Cell], required: float, shape: bool | None) -> Verdict:
    """What the cells' tolerances and the shape say."""
    judged = [c.within for c in cells if c.within is not None]
    if not judged and shape is None:
        return "ours alone"
    if judged and np.mean(judged) >= required and shape is not False:
        return "agrees"
    return "agrees in shape" if shape else "differs"


def _in_short(estimates: Sequence[Estimate]) -> str:
    if len(estimates) == 1:
        return str(estimates[0])
    values = [e.value for e in estimates]
    return f"{number(min(values))} to {number(max(values))}" if values else ""


def number(x: float) -> str:
    """Four digits behind the point where they say something, as the papers print."""
    return f"{x:.4f}" if 0 < abs(x) < 10 and x != int(x) else f"{x:,.6g}"


def write_table(folder: Path, name: str, title: str, cells: Sequence[Cell]) -> list[str]:
    """Write cells to NAME.csv and NAME.md; returns the files' names."""
    of = {key: "" for cell in cells for key in cell.of}
    lines = [of | _line(cell) for cell in cells]
    heads = [head for head in lines[0] if any(line[head] for line in lines)]
    table = [[line[head] for head in heads] for line in lines]
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([heads, *table])
    text = f"# {title}\n\n{markdown(heads, table)}"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return [f"{name}.md", f"{name}.csv"]


def _line(cell: Cell) -> dict[str, str]:
    of = {
        key: f"{value:g}" if isinstance(value, float) else str(value)
        for key, value in cell.of.items()
    }
    return {
        **of,
        "published": str(cell.published or ""),
        "ours": str(cell.ours),
        "runs": str(cell.ours.runs),
        "our default": str(cell.recipe or ""),
        "deviation in standard errors": "" if cell.deviation is None else f"{cell.deviation:+.1f}",
        "within": {None: "", True: "yes", False: "no"}[cell.within],
    }


Figure = Callable[[Path, bool], list[Row]]
"""Makes one or more figures: writes tables and pictures to a folder, quickly or in full."""


def reproduce(paper: str, figures: Sequence[Figure], quick: bool) -> None:
    """Run a paper's figures one after another, tell how each went, and renew RESULTS.md.

    A quick version is written to .cache/reproduction and leaves the results in full alone. Of few
    runs it compares only what knows no chance.

    Raises
    ------
    SystemExit
        If a number without chance is not the published one.
    """
    folder = home_of(quick) / "results" / paper
    folder.mkdir(parents=True, exist_ok=True)
    write_made(folder)
    rows: list[Row] = []
    for figure in figures:
        begun = time.perf_counter()
        with style.context(STYLE):
            found = figure(folder, quick)
        minutes = (time.perf_counter() - begun) / 60 / len(found)
        for row in found:
            known = row if row.exact or not quick else _only_ran(row)
            rows.append(replace(known, paper=paper, minutes=minutes))
            print(f"{paper:10}{row.figure:28}{known.verdict:17}{known.within}", flush=True)
        write_rows(folder / "rows.csv", rows)
        gather(quick)
    wrong = [row.figure for row in rows if row.exact and row.verdict == "differs"]
    if wrong:
        raise SystemExit(f"{paper}: not the published numbers, which know no chance: {wrong}")


def _only_ran(row: Row) -> Row:
    """Few runs lie near no published number, and say nothing."""
    return replace(row, verdict="ran", within="", expected="", deviation_in_se=None)
