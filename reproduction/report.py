"""RESULTS.md, and the tables of the documentation's page on the papers, from all papers' rows."""

from __future__ import annotations

import csv
import json
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reproduction.results import Row

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reproduction.md"

PAPERS = {
    "fkm": "Garst & Reinders, Federated K-means clustering (FKM), ICPR 2024; arXiv 2310.01195",
    "triebe": "Triebe & Rajagopal, Federated K-Means, 2019",
    "ffcm": "Stallmann & Wilbik, Towards federated clustering (FFCM), FL-AAAI 2022",
    "framework": "Stallmann & Wilbik, On a framework for federated cluster analysis, 2022",
}

SHORT = {"fkm": "FKM", "triebe": "federated averaging", "ffcm": "FFCM", "framework": "framework"}

Line = Mapping[str, str]


def home_of(quick: bool) -> Path:
    """Where results go: reproduction/, or a folder that is not kept."""
    return HERE.parent / ".cache" / "reproduction" if quick else HERE


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        heads = list(asdict(rows[0])) if rows else []
        writer = csv.DictWriter(file, heads, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            deviation = "" if row.deviation_in_se is None else f"{row.deviation_in_se:+.1f}"
            minutes = f"{row.minutes:.2f}"
            writer.writerow(asdict(row) | {"deviation_in_se": deviation, "minutes": minutes})


def write_made(folder: Path) -> None:
    """Note with what the results of a paper are made."""
    names = ("fedcluster", "numpy", "scipy", "scikit-learn", "numba")
    made = {"commit": commit(), "Python": platform.python_version()}
    made |= {name: version(name) for name in names} | {"processor": platform.machine()}
    (folder / "made.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def commit() -> str:
    """The commit of the code, and whether it was changed since; results are no code."""
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", ".", ":!reproduction/results", ":!*.md")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + (", changed" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def rows_of(paper: str, home: Path) -> list[Line]:
    """The rows that a paper's last run left."""
    path = home / "results" / paper / "rows.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def gather(quick: bool = False) -> None:
    """Write RESULTS.md from the rows that each paper's last run left, and the page's table."""
    home = home_of(quick)
    found = {paper: rows_of(paper, home) for paper in PAPERS}
    parts = [QUICK if quick else FULL, summary(found)]
    parts += [section(paper, rows, home) for paper, rows in found.items() if rows]
    (home / "RESULTS.md").write_text("\n".join(parts), encoding="utf-8")
    if not quick and PAGE.exists():
        before, begin, text = PAGE.read_text(encoding="utf-8").partition("<!-- verdicts -->\n")
        _, end, after = text.partition("<!-- end of verdicts -->")
        PAGE.write_text("".join([before, begin, summary(found), end, after]), encoding="utf-8")


def summary(found: Mapping[str, Sequence[Line]]) -> str:
    """How many rows of each paper have which verdict."""
    verdicts = ("agrees", "agrees in shape", "differs", "stand-in", "ours alone")
    lines = []
    for paper, rows in found.items():
        counts = Counter(row["verdict"] for row in rows)
        lines.append([SHORT[paper], *(str(counts[v]) for v in verdicts), minutes_of(rows)])
    return markdown(["paper", *verdicts, "minutes"], lines)


def minutes_of(rows: Sequence[Line]) -> str:
    return f"{sum(float(row['minutes']) for row in rows):.1f}"


COLUMNS = {
    "what": "what",
    "published": "published",
    "ours": "ours",
    "within": "within",
    "a perfect one": "expected",
    "deviation": "deviation_in_se",
    "verdict": "verdict",
    "minutes": "minutes",
}


def section(paper: str, rows: Sequence[Line], home: Path) -> str:
    """A paper's table, and what its rows assume."""
    lines = [[linked(paper, row), *(row.get(c, "") for c in COLUMNS.values())] for row in rows]
    details = "".join(f"- *{row['figure']}*: {detail(row)}\n" for row in rows if detail(row))
    made = home / "results" / paper / "made.json"
    with_what = json.loads(made.read_text(encoding="utf-8")) if made.exists() else {}
    text = ", ".join(f"{name} {value}" for name, value in with_what.items()) or "an older release"
    table = markdown(["figure", *COLUMNS], lines)
    return f"## {PAPERS[paper]}\n\nMade with {text}.\n\n{table}\n{details}"


def detail(row: Line) -> str:
    """How a row is judged, and its reason."""
    runs, allowed, error = (row.get(c, "") for c in ("runs", "allowed", "error_is_of"))
    judged = [
        f"{runs} runs" if runs else "",
        f"allowed: {allowed}" if allowed else "",
        f"standard error: of {error}" if error else "",
    ]
    return ". ".join(filter(None, ["; ".join(filter(None, judged)), row["reason"]]))


def linked(paper: str, row: Line) -> str:
    """The figure's name, linked to its first file, the others by their kinds."""
    files = [f"results/{paper}/{name}" for name in row["files"].split()]
    if not files:
        return row["figure"]
    more = "".join(f" [{Path(name).suffix[1:]}]({name})" for name in files[1:])
    return f"[{row['figure']}]({files[0]}){more}"


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join("| " + " | ".join(c.replace("|", "/") for c in row) + " |\n" for row in rows)


FULL = """# The papers' figures and tables

Written by `make reproduce`; not by hand.

- **published**, **ours**: the number with the runs' standard deviation, or the range of the
  figure's numbers.
- **within**: how many of our numbers lie within what is allowed; **a perfect one**: how many of a
  perfect reproduction would, on average, since the published numbers are means of few runs, too.
- **deviation**: ours minus the published in standard errors of that difference; the largest of a
  figure. Below each table stands whose runs a standard error is of: where a paper prints no
  deviation, that of our runs stands for it; published quartiles are taken for those of a normal
  sample.
- **allowed** (SE: standard errors of the difference) is the tolerance that the project asks for.
- **verdict**: *agrees*: as many numbers as required lie within, all if nothing else is said;
  *agrees in shape*: not so, but the paper's conclusion holds; *differs*; *stand-in*: the paper's
  rows are not public, and others stand in for them; *ours alone*: nothing is published to compare
  with.
- **minutes** are those of the figure on two processes, more where the machine had other work;
  figures made of the same runs share them equally.
"""

QUICK = FULL.replace(
    "Written by `make reproduce`; not by hand.",
    "Written by `make reproduce-quick`: few runs show that it runs, not what it finds. Only what\n"
    "knows no chance is compared; the verdict of all else is *ran*.",
)
