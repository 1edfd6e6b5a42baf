"""Parts of a report for other documents: tables (CSV, Excel), charts (SVG, PNG) and a slide."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fedcluster.io.outputs import atomic_folder, free_name, harmless
from fedcluster.report._summary import FACTS, MOST_CARDS, fact, size, sure, title_of
from fedcluster.report.page import HERE, report_page
from fedcluster.report.pictures import pictured, slide
from fedcluster.report.run import Run, damaged

FOLDER = "report"
"""Folder of the parts, beside the report."""
CHART = re.compile(r'<svg (viewBox="0 0 ([\d.]+) ([\d.]+)".*? aria-label="([^"]*)".*?)</svg>', re.S)


def write_parts(folder: Path, run: Run) -> list[str]:
    """Write the tables and the charts of a report into a folder.

    Parameters
    ----------
    folder : Path
        The folder of the run. The files are in its folder `FOLDER`.
    run : Run
        The run.

    Returns
    -------
    list of str
        Names of the files, relative to ``folder``.

    Raises
    ------
    InputError
        If the content of the run is damaged, or the folder cannot be written.
    """
    with damaged(folder):
        tables, charts = list(tables_of(run)), charts_of(report_page(run))
    with atomic_folder(folder / FOLDER) as place:
        for name, rows in tables:
            with (place / f"{name}.csv").open("w", encoding="utf-8-sig", newline="") as file:
                csv.writer(file).writerows([[_cell(each) for each in row] for row in rows])
        for name, text in charts.items():
            (place / f"{name}.svg").write_text(text, encoding="utf-8")
        book = place / "tables.xlsx"
        files = pictured(book.name, book, partial(_workbook, tables), "openpyxl", "excel")
        if 0 < run.k <= MOST_CARDS:
            files += pictured("slide", place / "slide.png", partial(_slide, run))
        if pictured("charts as PNG", place, partial(_as_png, charts), "resvg-py"):
            files += [f"{name}.png" for name in charts]
    files += [*(f"{name}.csv" for name, _ in tables), *(f"{name}.svg" for name in charts)]
    return [f"{FOLDER}/{file}" for file in files]


def _workbook(tables: Sequence[tuple[str, Sequence[Sequence[Any]]]], path: Path) -> None:
    """Write the tables as the sheets of a workbook."""
    book = import_module("openpyxl").Workbook()
    book.remove(book.active)
    for name, rows in tables:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append([_cell(each) for each in row])
        sheet.freeze_panes = "B2"
    book.save(path)


def _slide(run: Run, path: Path) -> None:
    """Draw the clusters, as on the first page."""
    cards = [
        [
            f"{j} {run.names[j]}",
            size(run, j),
            *(fact(each, j) for each in run.facts(j, FACTS)),
        ]
        for j in range(run.k)
    ]
    foot = " · ".join(filter(None, [run.name, run.date, "made by fedcluster"]))
    lead = f"{title_of(run)}. {sure(run)}" if run.title else sure(run)
    figure = slide(run.title or title_of(run), [lead, foot], cards)
    figure.savefig(path, format="png", metadata={"Software": None})


def _as_png(charts: Mapping[str, str], folder: Path) -> None:
    """Draw charts that are SVG, twice as large, in the font of matplotlib's pictures."""
    draw = import_module("resvg_py").svg_to_bytes
    fonts = Path(import_module("matplotlib").get_data_path(), "fonts", "ttf")
    font = {"font_dirs": [str(fonts)], "sans_serif_family": "DejaVu Sans"}
    for name, text in charts.items():
        (folder / f"{name}.png").write_bytes(draw(text, zoom=2, **font))


def _cell(content: Any) -> Any:
    """Return the content of a cell; text that a spreadsheet may take for a formula is marked."""
    return harmless(content) if isinstance(content, str) else content


def tables_of(run: Run) -> Iterator[tuple[str, Sequence[Sequence[Any]]]]:
    """Yield each table with its name: clusters, profiles, and sites where they are known.

    Examples
    --------
    >>> run = Run(model={"columns": ["age"], "centers": [[40.0], [80.0]], "weights": [3.0, 1.0],
    ...                  "algorithm": {}, "inertia": 16.0})
    >>> dict(tables_of(run))["profiles"][1]
    ['age', '', 50.0, 40.0, 80.0]
    >>> dict(tables_of(run))["clusters"][2]
    [1, 'older', 1.0, 0.25, 'age 80 (all rows 50)']
    """
    if not run.k:
        return
    share = run.sizes / max(float(run.sizes.sum()), 1e-300)
    stable = run.stability.get("clusters")
    head = ["cluster", "name", "rows", "share", *(f"fact {i + 1}" for i in range(FACTS))]
    lines: list[list[Any]] = [[*head, "stability"] if stable else head[: 4 + FACTS]]
    for j in range(run.k):
        facts = [fact(each, j) for each in run.facts(j, FACTS)]
        line = [j, run.names[j], float(run.sizes[j]), float(share[j]), *facts]
        if stable:
            line += [""] * (FACTS - len(facts)) + [stable[j]["word"]]
        lines.append(line)
    yield "clusters", lines
    names = [f"{j} {name}" for j, name in enumerate(run.names)]
    columns = [
        [each.column, each.level, each.overall, *each.values.tolist()] for each in run.features
    ]
    yield "profiles", [["column", "level", "all rows", *names], *columns]
    if run.counts is not None:
        sites = [
            [site["name"], *own] for site, own in zip(run.sites, run.counts.tolist(), strict=True)
        ]
        yield "sites", [["site", *names], *sites]


def charts_of(page: str) -> dict[str, str]:
    """Return the charts of a page by name, each as an SVG file with its own style in light colours.

    Parameters
    ----------
    page : str
        The report.
    """
    style = (HERE / "page.css").read_text("utf-8")
    colours = dict(re.findall(r"--(\w+): (#\w+)", style.partition("@media")[0]))
    rules = style.partition("figure {")[2].partition(".charts {")[0].partition("}")[2]
    rules = re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], rules)
    font = "svg { font-family: sans-serif; background: #ffffff; }"
    charts: dict[str, str] = {}
    for inner, width, height, label in CHART.findall(page):
        slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:60] or "chart"
        size = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        start, _, drawn = inner.partition(">")
        charts[free_name(slug, charts)] = (
            f"<svg {size} {start}><style>{font}{rules}</style>{drawn}</svg>\n"
        )
    return charts
