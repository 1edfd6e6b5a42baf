"""Report on a run: one page in HTML that opens without a network, and its sections on the run."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcluster.core import Limit
from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError
from fedcluster.metrics.indices import CHOOSING
from fedcluster.metrics.objectives import MEANINGS, round_name, shown_value
from fedcluster.model.run import NOTHING, Run, damaged, day_of, finite
from fedcluster.texts import html
from fedcluster.texts.words import counted, number, percent, shown
from fedcluster_app.report import _sections as sections
from fedcluster_app.report import charts
from fedcluster_app.report._comparison import why
from fedcluster_app.report._sections import Content
from fedcluster_app.report._summary import chosen, clusters, doubts_of, summary, sure, title_of
from fedcluster_app.report.messages import limits_in_words, named_objective, privacy_lines

WON = "the best run, after its start"


def convergence(run: Run, of: str = WON) -> Content:
    """Return the convergence of the objective and the centres, and the run it is about."""
    history = run.history["history"] if run.history else ()
    if not history:
        return ()
    name = round_name(named_objective(run.history))
    rounds = [done["round"] for done in history]
    objective = [shown_value(name, finite(done["inertia"])) for done in history]
    shift = [finite(done["shift"]) for done in history]
    about, known = counted(len(rounds), "round"), [x for x in objective if math.isfinite(x)]
    if known:
        about += f"; the {name} begins at {number(known[0])} and ends at {number(known[-1])}"
    falls, moves = f"{name.capitalize()} by round", "Largest shift of a centre, logarithmic"
    series = ((falls, objective, False), (moves, shift, True))
    curves = (
        html.titled(what, charts.curve(what, f"{about}.", rounds, ys, label="round", log=log))
        for what, ys, log in series
    )
    rows = [
        [str(done["round"]), done["step"], shown(x), shown(done["shift"])]
        for done, x in zip(history, objective, strict=True)
    ]
    meant = f" ({MEANINGS[name]})" if name in MEANINGS else ""
    numbers = html.Table(
        "Round by round", ["round", "step", name, "shift of a centre"], rows
    ).html()
    lead = (
        f"The {name}{meant} and the largest distance that a centre moved, for each round of "
        f"{of}. Both refer to the prepared rows."
    )
    return [html.paragraphs(lead), html.beside(html.joined(*curves), numbers)]


def indices(run: Run) -> Content:
    """Return each index by number of clusters: a curve for each, and a table."""
    verdict = chosen(run)
    if not verdict:
        return ()
    says, k = verdict["says"], verdict["n_clusters"]
    ks = [line["k"] for line in verdict["table"]]
    drawn, rows = [], []
    for index in [name for name in says if name in CHOOSING]:
        label = CHOOSING[index].label.removeprefix("the ")
        name = f"{label[:1].upper()}{label[1:]}"
        values = [finite(line.get(index)) for line in verdict["table"]]
        about = f"Over k from {ks[0]} to {ks[-1]}; it says {says[index]}."
        chart = charts.curve(name, about, ks, values, label="clusters", marked=says[index])
        drawn.append(html.titled(f"{name}: {says[index]}", chart))
    lead = f"{verdict['reason']} The larger dot is the choice of each index."
    for line in verdict["table"]:
        cells = ((shown(line.get(index)), own == line["k"]) for index, own in says.items())
        row = [html.element("strong", value) if is_own else value for value, is_own in cells]
        rows.append([f"{line['k']}{' (chosen)' if line['k'] == k else ''}", *row])
    title = "What each index says of each k (its choice in bold)"
    curves = html.element("div", drawn, class_="charts") if any(drawn) else None
    return [html.paragraphs(lead), curves, html.Table(title, ["k", *says], rows).html()]


def data(run: Run) -> Content:
    """Return the preparation of the rows, and findings about them."""
    preprocessing = run.account.get("preprocessing", {})
    columns = preprocessing.get("left_out", {})
    out = [[html.named(name), why] for name, why in columns.items()]
    doubts = doubts_of(run)
    missing = [
        [html.named(column), html.named(site), f"{n:,.0f}"]
        for site, columns in preprocessing.get("missing", {}).items()
        for column, n in columns.items()
        if n
    ]
    stop = run.history.get("stop_reason")
    lines = [*run.account.get("prepared", ()), *([f"The search {stop}."] if stop else [])]
    return [
        html.listed_items(lines),
        html.element("h3", "All doubts, the weightiest first") if doubts else None,
        html.listed_items(doubts),
        html.Table("Columns left out", ["column", "why"], out).html("texts"),
        html.Table("Missing values", ["column", "site", "values"], missing).html(),
    ]


def taking_part(run: Run) -> Content:
    """Return which sites answered in which rounds."""
    if not run.rounds or not run.sites:
        return ()
    names = [site["name"] for site in run.sites]
    marks = [[_mark(done, name) for done in run.rounds] for name in names]
    why = reasons(run)
    rows = [
        [html.named(name), str(own.count("yes")), str(own.count("missing")), why.get(name, "")]
        for name, own in zip(names, marks, strict=True)
    ]
    by_round = [
        [
            str(done["round"]),
            f"{sum(done['values_sent'].values()):,}",
            ", ".join(f"{n} {step}" if n > 1 else step for step, n in done["tasks"].items()),
        ]
        for done in run.rounds
    ]
    about = f"{counted(len(names), 'site')} and {counted(len(run.rounds), 'round')}"
    chart = charts.presence("Who answered in which round", f"{about}.", names, marks)
    header = ["site", "rounds answered", "missed", "why"]
    numbers = html.Table("Rounds of each site", header, rows).html(sites=True)
    header = ["round", "numbers that came", "steps"]
    questions = html.Table("What each round asked", header, by_round).html("texts")
    hiding = html.element("div", class_="controls", data_hide="site", data_count=len(names))
    return [hiding if len(names) > 1 else None, html.beside(chart, numbers), questions]


def _mark(done: Mapping[str, Any], name: str) -> str:
    if name in done["missing"]:
        return "missing"
    return "yes" if name in done["values_sent"] else ""


def reasons(run: Run) -> dict[str, str]:
    """Return the reasons why sites are missing in some rounds, by name."""
    by_site: dict[str, Counter[str]] = {}
    for refusal in run.account.get("missing", ()):
        by_site.setdefault(refusal["site"], Counter())[refusal["reason"]] += 1
    return {
        site: "; ".join(f"{reason} ({counted(n, 'round')})" for reason, n in why.items())
        for site, why in by_site.items()
    }


def leaving(run: Run) -> Content:
    """Return what left each site, under which limits, and what can be inferred from it."""
    if not run.rounds:
        return ()
    rows = [_left(run, i) for i in range(len(run.sites))]
    header = [
        "site",
        "numbers sent",
        "bytes",
        "numbers per value held",
        "most rows hidden",
        "limits",
    ]
    table = html.Table("What left each site", header, rows).html("texts", sites=True)
    return [html.paragraphs(*_known(run)), table]


def _left(run: Run, i: int) -> list[Any]:
    """Return the line on what left a site."""
    columns = len(run.account.get("columns", run.model.get("columns", ())))
    site, hidden = run.sites[i], run.hidden[i]
    limits = [Limit.from_plain(each) for each in site.get("limits", ())]
    sent, held = site.get("values_sent", 0), (site.get("rows") or 0) * columns
    # Number of bytes of a number in a message.
    return [
        html.named(site["name"]),
        f"{sent:,}",
        _bytes(sent * 8),
        number(float(f"{sent / held:.2g}")) if held else "–",
        percent(hidden),
        "; ".join(limits_in_words(limits)) or "none",
    ]


def _known(run: Run) -> list[str]:
    """Return what can be inferred from the numbers that left."""
    if run.history and run.history.get("privacy"):
        here = any("rows" in site for site in run.sites)
        return [
            "Every number that left a site has random noise, and nothing else left.",
            *privacy_lines(run.history, exact=here),
        ]
    lines = [
        "Only sums and counts left the sites, one set for each cluster, start and round. They "
        "reveal the means and sizes of groups of rows at each site.",
    ]
    if any(site.get("secure") for site in run.sites):
        lines = [
            "Only masked numbers left the sites. The coordinator learnt the sums of all sites "
            "together, and nothing of a single site; see the page on secure sums.",
        ]
    lone = [site for site in run.sites if site.get("lone_rows")]
    grouped = [s for s in run.sites if any(m["name"] == "Groups" for m in s.get("limits", ()))]
    if grouped:
        p = min(m["p"] for s in grouped for m in s["limits"] if m["name"] == "Groups")
        lines.append(
            f"At {counted(len(grouped), 'site')}, rows are in fixed groups of at least {p}: no "
            "combination of sums is about fewer rows."
        )
    if lone:
        lines.append(
            f"At {counted(len(lone), 'site')}, some sums were about a single row, which they "
            "reveal. A limit on the smallest cluster holds such sums back, and so do groups."
        )
    return [*lines, *_how_hidden(run)]


def _how_hidden(run: Run) -> list[str]:
    """Return how the number of rows that limits hid is known, if the rows are elsewhere."""
    if all("rows_held_back" in site for site in run.sites):
        return []
    if any(map(math.isfinite, run.hidden)):
        return [
            "Hidden rows are those that the sums of the profiles do not include: limits held them "
            "back, or they were left out."
        ]
    return ["Only the sites know how many rows the limits hid; fit --profile asks for it."]


def _bytes(n: int) -> str:
    """Return a number of bytes in few characters.

    Examples
    --------
    >>> _bytes(800), _bytes(800_000), _bytes(12_300_000)
    ('800 B', '800 kB', '12.3 MB')
    """
    for size, unit in ((1e6, "MB"), (1e3, "kB")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} B"


def prediction(run: Run) -> Content:
    """Return how new rows are assigned to clusters."""
    if not run.k:
        return ()
    lead = (
        "The model assigns new rows to the clusters. It finds the columns of the fit by name and "
        "prepares them in the same way; other columns are ignored. Each site does this for its own "
        "rows."
    )
    command = "fedcluster predict model.json NEW.csv --out labels"
    load = 'labels = Model.load("model.json").predict(rows)'
    python = ("from fedcluster import Model", html.Html("\n\n"), load)
    return [
        html.paragraphs(lead),
        [html.element("pre", html.element("code", each), tabindex=0) for each in (command, python)],
        html.element("p", "Columns: ", html.names_listed(run.model["columns"]), "."),
    ]


def origin(run: Run) -> Content:
    """Return the version, the seed and the parameters."""
    facts: list[Sequence[Any]] = []
    if "fedcluster_version" in run.model:
        facts.append(["fedcluster", run.model["fedcluster_version"]])
    facts.append(["seed", run.account.get("seed", run.model.get("seed"))])
    parameters = {k: v for k, v in run.model.get("algorithm", {}).items() if k != "steps"}
    facts += [[name, _parameter(value)] for name, value in parameters.items()]
    steps = run.model.get("algorithm", {}).get("steps", ())
    question = f"What the sites were asked: {counted(len(steps), 'step')}"
    details = html.element("details", html.element("summary", question), html.listed_items(steps))
    table = html.Table("How it was made", ["parameter", "value"], facts).html("texts")
    return [table, details if steps else None]


def _parameter(value: Any) -> str:
    """Return a parameter as text, shortened if it is long."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{k}={_parameter(v)}" for k, v in value.items() if k != "name" and v)
        return f"{value.get('name', '')}({inner})" if "name" in value else f"{{{inner}}}"
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


LEAD = (
    "What the centres of the last round would be without each site, by its sums alone. Shifts are "
    "in units of the clusters' spread, the root mean squared distance of rows to their centre. "
    "Then comes by how much the other sites' inertia is higher because of the site, and how many "
    "clusters it has alone. The first site adds most for its share of the rows: if it is far above "
    "the others, it has rows of another kind, or its sums are wrong."
)
HEADER = (
    *("site", "share of the rows", "largest shift", "mean shift"),
    *("inertia of the others", "clusters it has alone"),
)


def influence(run: Run) -> Content:
    """Return the influence of each site on the centres, largest first."""
    sites = run.history.get("influence") if run.history else None
    if not sites:
        return ()
    rows = [
        [
            html.named(each["site"]),
            _signed(each.get("share"), 100, " %"),
            _signed(each["largest_shift"]),
            _signed(each["mean_shift"]),
            _signed(each["inertia_change"], 100, " %", "+"),
            str(each["alone"]),
        ]
        for each in sites
    ]
    return [html.paragraphs(LEAD), html.Table("Influence of each site", HEADER, rows).html()]


def _signed(x: Any, factor: float = 1, unit: str = "", sign: str = "") -> str:
    """Return a number as the table shows it; an en dash if unknown."""
    return "–" if x is None else f"{factor * x:{sign}.3g}{unit}"


REPORT = "report.html"
HERE = Path(__file__).parent
PARTS: Mapping[str, tuple[str, str, Callable[[Run], Content]]] = {
    "found": ("Summary", "", summary),
    "profiles": ("Profiles", "Profiles of the clusters", sections.profiles),
    "sites": ("Sites", "Clusters by site", sections.by_site),
    "choice": ("Why this number", "Why this number of clusters", why),
    "plane": ("Map", "Map of the clusters", sections.plane),
    "stability": ("Stability", "Stability", sections.stability),
    "silhouettes": (
        "Simplified silhouettes",
        "Simplified silhouettes by cluster",
        sections.silhouettes,
    ),
    "data": ("Data", "The data", data),
    "leaving": ("What left", "What left the sites", leaving),
}
"""The sections in order: name in the contents, heading and function.

A section without content is left out.
"""
FOLDED: Mapping[str, tuple[str, str, Callable[[Run], Content]]] = {
    "quality": ("Quality", "Quality", sections.quality),
    "indices": ("Indices", "What each index says of each number of clusters", indices),
    "convergence": ("Convergence", "How it converged", convergence),
    "rounds": ("Rounds", "Who took part in which round", taking_part),
    "influence": ("Influence", "Influence of the sites", influence),
    "prediction": ("New rows", "Clusters of new rows", prediction),
    "origin": ("Parameters", "Version, seed and parameters", origin),
}
"""Sections for engineers, which are collapsed."""
ENGINEERS = "For engineers"
NAMES = {"now": "Now", **{key: name for key, (name, _, _) in {**PARTS, **FOLDED}.items()}}
HEADINGS = {"now": "Now", **{key: head for key, (_, head, _) in {**PARTS, **FOLDED}.items()}}


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
    """Write the report beside results; return its file name, or only a warning."""
    try:
        return [write_report(folder, replace(run, date=day_of(time.time())))]
    except InputError as error:
        warnings.warn(f"no report: {error}", stacklevel=3)
        return []


def report_page(run: Run) -> str:
    """Return the report on a run as a page."""
    parts, folded = (
        {key: html.section(key, heading, *of(run)) for key, (_, heading, of) in group.items()}
        for group in (PARTS, FOLDED)
    )
    about = [run.name, run.date, f"fedcluster {run.version}" if run.version else ""]
    return page(
        run.title or title_of(run),
        " · ".join(filter(None, about)),
        {key: part for key, part in parts.items() if part},
        folded={key: part for key, part in folded.items() if part},
    )


def page(
    title: str,
    name: str,
    parts: Mapping[str, html.Html],
    *,
    folded: Mapping[str, html.Html] = NOTHING,
    live: bool = False,
) -> str:
    """Return a page with its contents, style and script included.

    Parameters
    ----------
    title, name : str
        Its title, and the name of its subject.
    parts, folded : dict of str to Html
        The sections, and those that are folded.
    live : bool, default=False
        Whether the page follows a run; it then reloads itself each second.
    """
    style, script = ((HERE / file).read_text("utf-8") for file in ("page.css", "page.js"))
    policy = _policy(style, script, live=live)
    contents = [
        html.element("a", NAMES[key], href=f"#{key}") for key in [*parts, *folded] if key in NAMES
    ]
    details = html.element("details", html.element("summary", ENGINEERS), list(folded.values()))
    head = html.element(
        "head",
        html.element("meta", charset="utf-8"),
        html.element("meta", http_equiv="Content-Security-Policy", content=policy),
        html.element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        html.element("meta", name="color-scheme", content="light dark"),
        html.element("meta", name="generator", content="fedcluster"),
        html.element("title", f"{title} – fedcluster"),
        html.element("style", html.Html(style)),
    )
    body = html.element(
        "body",
        html.element("a", "To the contents", href="#main", class_="skip"),
        html.element(
            "header",
            html.element("p", html.element("bdi", name), class_="run"),
            html.element("h1", title),
        ),
        html.element("nav", contents, aria_label="Contents"),
        html.element(
            "main", list(parts.values()), details if folded else None, id="main", data_live=live
        ),
        html.element(
            "footer", html.element("p", "Made by fedcluster from sums and counts; no row is in it.")
        ),
        html.element("script", html.Html(script)),
    )
    return f"<!doctype html>\n{html.element('html', head, body, lang='en')}\n"


def _policy(style: str, script: str, *, live: bool) -> str:
    """Return the content security policy: the page may use only its own style and script."""
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


def cards(run: Run) -> html.Html:
    """Return the clusters as cards for a notebook, with their style."""
    style = (HERE / "page.css").read_text("utf-8")
    colours, _, rest = style.partition("* { box-sizing")
    own = rest.partition("/* cards */")[2].partition("/* end of cards */")[0]
    own = re.sub(r"^([.][^{}\n]+) [{]", _within, own, flags=re.MULTILINE)
    inner = html.Html(colours.replace(":root", f".{NOTEBOOK}") + own)
    heading = html.element("p", title_of(run), ". ", sure(run))
    return html.element(
        "div", html.element("style", inner), heading, clusters(run), class_=NOTEBOOK
    )


NOTEBOOK = "fedcluster"
"""The class to which the style of cards is restricted in a notebook."""


def _within(rule: re.Match[str]) -> str:
    """Return the selectors of a style rule, each restricted to a notebook's class."""
    selectors = ", ".join(f".{NOTEBOOK} {each.strip()}" for each in rule[1].split(","))
    return f"{selectors} {{"
