"""The report: one page in HTML that opens without a network, made of the files of a run."""

from __future__ import annotations

import base64
import hashlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from fedcluster._html import Html, element, joined
from fedcluster._pages import _account as account
from fedcluster._pages import _quality as quality
from fedcluster._pages import _sections as sections
from fedcluster._pages._influence import influence
from fedcluster._pages._run import Run, damaged, read_run, written_by
from fedcluster._report._messages import counted
from fedcluster._report._tables import number
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_write

REPORT = "report.html"
HERE = Path(__file__).parent
PARTS: Sequence[Callable[[Run], Html]] = (
    sections.found,
    sections.clusters,
    sections.by_site,
    sections.profiles,
    sections.plane,
    quality.stability,
    quality.silhouettes,
    account.convergence,
    quality.quality,
    account.choice,
    account.data,
    account.taking_part,
    influence,
    account.leaving,
    account.prediction,
    account.origin,
)
"""The sections in their order; one of which nothing is known is absent."""
NAMES = {
    "now": "Now",
    "found": "Found",
    "clusters": "Clusters",
    "sites": "Sites",
    "profiles": "Profiles",
    "plane": "Plane",
    "stability": "Stability",
    "silhouettes": "Silhouettes",
    "convergence": "Convergence",
    "quality": "Quality",
    "choice": "Number of clusters",
    "data": "Data",
    "rounds": "Rounds",
    "influence": "Influence",
    "leaving": "What left",
    "prediction": "New rows",
    "origin": "Parameters",
}
"""How the list of contents calls each section."""


def write_report(folder: Path, name: str = "") -> str:
    """Write the report of the files in a folder into it; return the name of the file.

    Parameters
    ----------
    folder : Path
        The folder that a job wrote, or that of a run of a federation that has ended.
    name : str
        What the page calls the run, by default the name of the folder.

    Raises
    ------
    InputError
        If the folder holds no result, or a file is damaged.
    """
    run = read_run(folder)
    with damaged(folder):
        text = report_page(run, name)
    with atomic_write(written_by(folder) / REPORT) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return REPORT


def reported(folder: Path, name: str) -> list[str]:
    """Write the report beside results; return the name of its file, or nothing and a warning."""
    try:
        return [write_report(folder, name)]
    except InputError as error:
        warnings.warn(f"no report: {error}", stacklevel=3)
        return []


def report_page(run: Run, name: str = "") -> str:
    """Return the report of a run as a page."""
    keys = [key for key in NAMES if key != "now"]
    parts = dict(zip(keys, (each(run) for each in PARTS), strict=True))
    there = {key: part for key, part in parts.items() if part}
    return page(title(run), name or run.name, there)


def title(run: Run) -> str:
    """Return what the page is called."""
    sites = counted(len(run.sites), "site")
    if run.k:
        rows = number(run.n_rows)
        return f"{counted(run.k, 'cluster')} of {rows} rows at {sites}"
    if run.model:
        return f"No clusters at {sites}"
    if verdict := sections.chosen(run):
        return f"{counted(verdict['n_clusters'], 'cluster')}, chosen at {sites}"
    return f"Scores at {sites}"


def page(title: str, name: str, parts: dict[str, Html], *, live: str = "") -> str:
    """Return a page with its contents, whose style and script are in it.

    Parameters
    ----------
    title, name : str
        What it is called, and of what it is.
    parts : dict of str to Html
        The sections.
    live : str
        Where the page asks for its new contents, if it follows a run.
    """
    style, script = ((HERE / file).read_text("utf-8") for file in ("page.css", "page.js"))
    contents = [element("a", NAMES[key], href=f"#{key}") for key in parts if key in NAMES]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script, live)),
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
        element("main", joined(*parts.values()), id="main", data_live=live or None),
        element(
            "footer", element("p", "Made by fedcluster from sums and counts; no row is in it.")
        ),
        element("script", Html(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _policy(style: str, script: str, live: str) -> str:
    """Return what the page may load: its own style and script, and nothing from elsewhere."""
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
