"""The report on a run: one page in HTML that opens without a network."""

from __future__ import annotations

import base64
import hashlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.io.outputs import atomic_write
from fedcluster.report import _account as account
from fedcluster.report import _sections as sections
from fedcluster.report._sections import Content
from fedcluster.report.run import Run, damaged
from fedcluster.report.tables import counted, number, percent
from fedcluster.texts.html import Html, Table, element, joined, section

REPORT = "report.html"
HERE = Path(__file__).parent
PARTS: Mapping[str, tuple[str, str, Callable[[Run], Content]]] = {
    "found": ("Found", "What was found", sections.found),
    "clusters": ("Clusters", "Clusters", sections.clusters),
    "sites": ("Sites", "Clusters by site", sections.by_site),
    "profiles": ("Profiles", "Profiles of the centres", sections.profiles),
    "plane": ("Plane", "Centres in the plane", sections.plane),
    "stability": ("Stability", "Stability", sections.stability),
    "silhouettes": (
        "Simplified silhouettes",
        "Simplified silhouettes by cluster",
        sections.silhouettes,
    ),
    "convergence": ("Convergence", "How it converged", account.convergence),
    "quality": ("Quality", "Quality", sections.quality),
    "choice": ("Number of clusters", "The number of clusters", account.choice),
    "data": ("Data", "The data", account.data),
    "rounds": ("Rounds", "Who took part in which round", account.taking_part),
    "influence": ("Influence", "Influence of the sites", account.influence),
    "leaving": ("What left", "What left the sites", account.leaving),
    "prediction": ("New rows", "Clusters of new rows", account.prediction),
    "origin": ("Parameters", "Version, seed and parameters", account.origin),
}
"""The sections in their order, each with its name in the contents, heading and function.

One of which nothing is known is absent.
"""
NAMES = {"now": "Now", **{key: name for key, (name, _, _) in PARTS.items()}}
HEADINGS = {"now": "Now", **{key: heading for key, (_, heading, _) in PARTS.items()}}
APART = 3
"""Columns of a table in which a cluster may be far from the mean of all rows."""


def write_report(folder: Path, run: Run) -> str:
    """Write the report on a run into a folder; return the name of the file.

    Raises
    ------
    InputError
        If the content of the run is damaged.
    """
    with damaged(folder):
        text = report_page(run)
    with atomic_write(folder / REPORT) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return REPORT


def reported(folder: Path, run: Run) -> list[str]:
    """Write the report beside results; return the name of its file, or nothing and a warning."""
    try:
        return [write_report(folder, run)]
    except InputError as error:
        warnings.warn(f"no report: {error}", stacklevel=3)
        return []


def report_page(run: Run) -> str:
    """Return the report on a run as a page."""
    parts = {key: section(key, heading, *of(run)) for key, (_, heading, of) in PARTS.items()}
    return page(title(run), run.name, {key: part for key, part in parts.items() if part})


def clusters_table(run: Run) -> Table:
    """Return the clusters as a table for notebooks: size, share, and distinctive columns."""
    words = [[each["word"]] for each in run.stability.get("clusters", ())] or [[]] * run.k
    share = run.sizes / max(float(run.sizes.sum()), 1e-300)
    rows = []
    for j in range(run.k):
        telling = sections.telling(run, j, APART)
        apart = ", ".join(f"{each.name} {sections.value(each, j)}" for each in telling)
        rows.append([j, number(float(run.sizes[j])), percent(share[j]), apart, *words[j]])
    header = ["cluster", "rows", "share", "what sets it apart"]
    return Table(title(run), [*header, *(["stability"] if any(words) else [])], rows)


def title(run: Run) -> str:
    """Return the title of the page."""
    sites = counted(len(run.sites), "site")
    if run.k:
        rows = number(run.n_rows)
        return f"{counted(run.k, 'cluster')} of {rows} rows at {sites}"
    if run.model:
        return f"No clusters at {sites}"
    if verdict := sections.chosen(run):
        return f"{counted(verdict['n_clusters'], 'cluster')}, chosen at {sites}"
    return f"Scores at {sites}"


def page(title: str, name: str, parts: Mapping[str, Html], *, live: bool = False) -> str:
    """Return a page with its contents, whose style and script are in it.

    Parameters
    ----------
    title, name : str
        What it is called, and of what it is.
    parts : dict of str to Html
        The sections.
    live : bool, default=False
        Whether the page follows a run: it then asks for itself again each second.
    """
    style, script = ((HERE / file).read_text("utf-8") for file in ("page.css", "page.js"))
    policy = _policy(style, script, live=live)
    contents = [element("a", NAMES[key], href=f"#{key}") for key in parts if key in NAMES]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="fedcluster"),
        element("title", f"{title} – fedcluster"),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element("a", "To the contents", href="#main", class_="skip"),
        element("header", element("p", element("bdi", name), class_="run"), element("h1", title)),
        element("nav", contents, aria_label="Contents"),
        element("main", joined(*parts.values()), id="main", data_live=live),
        element(
            "footer", element("p", "Made by fedcluster from sums and counts; no row is in it.")
        ),
        element("script", Html(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _policy(style: str, script: str, *, live: bool) -> str:
    """Return the content security policy: the page may load its own style and script only."""
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in (("style", style), ("script", script))
    }
    rules = [
        "default-src 'none'",
        f"style-src 'sha256-{hashes['style']}'",
        f"script-src 'sha256-{hashes['script']}'",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    return "; ".join(rules)
