"""What was published beside what we find, and what that says; the verdict is always computed.

A paper's script makes `Cell`s, one number each, and gathers those of a figure in a `Row`.
`reproduce` runs a paper's figures, and writes the rows of all papers to RESULTS.md.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "shared" / "reference"
"""Published data that cannot be made anew; they lie beside the clone, or are not at hand."""

PAPERS = {
    "fkm": "Garst & Reinders, Federated K-means clustering (FKM), ICPR 2024; arXiv 2310.01195",
    "triebe": "Triebe & Rajagopal, Federated K-Means, 2019",
    "ffcm": "Stallmann & Wilbik, Towards federated clustering (FFCM), FL-AAAI 2022",
    "framework": "Stallmann & Wilbik, On a framework for federated cluster analysis, 2022",
}

Verdict = Literal["agrees", "agrees in shape", "differs", "ours alone"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or median of runs: its value, the runs' standard deviation, their number.

    A number without a known deviation, or of a computation without chance, has no error.
    """

    value: float
    spread: float = math.nan
    runs: int = 1
    is_median: bool = False

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
        return cls(median, (q75 - q25) / 1.349, runs, True)

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
        t, value = self.tolerance, self.published.value
        allowed = t.errors * self.error + t.absolute + t.relative * abs(value)
        return bool(abs(self.ours.value - value) <= allowed)


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
    ) -> Row:
        """Judge a figure by its cells: the share within their tolerances that is required.

        ``shape`` says whether the paper's conclusion holds (order, direction), where the script
        tests it.
        """
        deviations = [c.deviation for c in cells if c.deviation is not None]
        return cls(
            paper="",
            figure=figure,
            what=what,
            published=_in_short([c.published for c in cells if c.published]),
            ours=_in_short([c.ours for c in cells]) + _share_within(cells),
            deviation_in_se=max(deviations, key=abs, default=None),
            verdict=verdict(cells, required, shape),
            reason=reason,
            files=" ".join(files),
        )

    @classmethod
    def left_out(cls, figure: str, what: str, reason: str) -> Row:
        """A figure that cannot be made here."""
        return cls("", figure, what, "", "not run", None, "ours alone", reason)


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


def _share_within(cells: Sequence[Cell]) -> str:
    judged = [c.within for c in cells if c.within is not None]
    return f"; {sum(judged)} of {len(judged)} within" if len(judged) > 1 else ""


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
    text = f"# {title}\n\n{_markdown(heads, table)}"
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


def _markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join("| " + " | ".join(c.replace("|", "/") for c in row) + " |\n" for row in rows)


Figure = Callable[[Path, bool], list[Row]]
"""Makes one or more figures: writes tables and pictures to a folder, quickly or in full."""


def reproduce(paper: str, figures: Sequence[Figure], quick: bool) -> None:
    """Run a paper's figures one after another, tell how each went, and renew RESULTS.md.

    A quick version is written to .cache/reproduction and leaves the results in full alone.
    """
    folder = home_of(quick) / "results" / paper
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for figure in figures:
        begun = time.perf_counter()
        found = figure(folder, quick)
        minutes = (time.perf_counter() - begun) / 60 / len(found)
        for row in found:
            rows.append(replace(row, paper=paper, minutes=minutes))
            print(f"{paper:10}{row.figure:28}{row.verdict:17}{row.ours}", flush=True)
        _write_rows(folder / "rows.csv", rows)
        gather(quick)


def _write_rows(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            deviation = "" if row.deviation_in_se is None else f"{row.deviation_in_se:+.1f}"
            writer.writerow(
                {**asdict(row), "deviation_in_se": deviation, "minutes": f"{row.minutes:.2f}"}
            )


def home_of(quick: bool) -> Path:
    """Where results go: reproduction/, or a folder that is not kept."""
    return HERE.parent / ".cache" / "reproduction" if quick else HERE


def gather(quick: bool = False) -> None:
    """Write RESULTS.md from the rows that each paper's last run left."""
    home = home_of(quick)
    parts = [QUICK if quick else FULL]
    for paper, title in PAPERS.items():
        path = home / "results" / paper / "rows.csv"
        if not path.exists():
            continue
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        minutes = sum(float(row["minutes"]) for row in rows)
        heads = ["figure", "what", "published", "ours", "deviation", "verdict", "reason", "minutes"]
        lines = [
            [_linked(paper, row), *(row[_COLUMNS.get(h, h)] for h in heads[1:])] for row in rows
        ]
        parts.append(f"## {title}\n\n{minutes:.1f} minutes.\n\n{_markdown(heads, lines)}")
    (home / "RESULTS.md").write_text("\n".join(parts), encoding="utf-8")


_COLUMNS = {"deviation": "deviation_in_se"}


def _linked(paper: str, row: Mapping[str, str]) -> str:
    """The figure's name, linked to its first file, the others by their kinds."""
    files = [f"results/{paper}/{name}" for name in row["files"].split()]
    if not files:
        return row["figure"]
    more = "".join(f" [{Path(name).suffix[1:]}]({name})" for name in files[1:])
    return f"[{row['figure']}]({files[0]}){more}"


FULL = """# The papers' figures and tables

Written by `make reproduce`; not by hand.

- **published**, **ours**: the number with the runs' standard deviation, or the range of the
  figure's numbers and how many of ours lie within the tolerance.
- **deviation**: ours minus the published in standard errors of that difference; the largest of a
  figure.
- **verdict**: *agrees*, within the tolerance that the project asks for; *agrees in shape*, not
  all of it is, but the paper's conclusion holds; *differs*; *ours alone*, nothing to compare with.
- **minutes** are those of the figure on two processes; figures made of the same runs share them
  equally.
"""

QUICK = FULL.replace(
    "Written by `make reproduce`; not by hand.",
    "Written by `make reproduce-quick`, from few runs: to see that it works, not what it finds.",
)
