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

from markupsafe import Markup

from fedcluster import metrics as measures
from fedcluster.core import Limit
from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError
from fedcluster.metrics.clusters import MEANINGS, round_name, shown_value
from fedcluster.model.run import NOTHING, Run, damaged, day_of, finite
from fedcluster.texts import counted, number, percent, shown
from fedcluster_app.report import _sections as sections
from fedcluster_app.report import charts
from fedcluster_app.report._sections import Content
from fedcluster_app.report._summary import chosen, clusters, doubts_of, summary, sure, title_of
from fedcluster_app.report.html import TEMPLATE, TEMPLATES, parts
from fedcluster_app.report.messages import limits_in_words, named_objective, privacy_lines

WON = "the best run, after its start"


def convergence(run: Run) -> Content:
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
        parts.titled(what, charts.curve(what, f"{about}.", rounds, ys, label="round", log=log))
        for what, ys, log in series
    )
    rows = [
        [str(done["round"]), done["step"], shown(x), shown(done["shift"])]
        for done, x in zip(history, objective, strict=True)
    ]
    meant = f" ({MEANINGS[name]})" if name in MEANINGS else ""
    header = ["round", "step", name, "shift of a centre"]
    numbers = parts.table("Round by round", header, rows)
    lead = (
        f"The {name}{meant} and the largest distance that a centre moved, for each round of "
        f"{WON}. Both refer to the prepared rows."
    )
    return [parts.paragraphs(lead), parts.beside(Markup("").join(curves), numbers)]


def indices(run: Run) -> Content:
    """Return each index by number of clusters: a curve for each, and a table."""
    verdict = chosen(run)
    if not verdict:
        return ()
    says, k = verdict["says"], verdict["n_clusters"]
    ks = [line["k"] for line in verdict["table"]]
    drawn, rows = [], []
    for index in [name for name in says if name in measures.CHOOSING]:
        label = measures.CHOOSING[index].label.removeprefix("the ")
        name = f"{label[:1].upper()}{label[1:]}"
        values = [finite(line.get(index)) for line in verdict["table"]]
        about = f"Over k from {ks[0]} to {ks[-1]}; it says {says[index]}."
        chart = charts.curve(name, about, ks, values, label="clusters", marked=says[index])
        drawn.append(parts.titled(f"{name}: {says[index]}", chart))
    lead = f"{verdict['reason']} The larger dot is the choice of each index."
    for line in verdict["table"]:
        cells = ((shown(line.get(index)), own == line["k"]) for index, own in says.items())
        row = [parts.strong(value) if is_own else value for value, is_own in cells]
        rows.append([f"{line['k']}{' (chosen)' if line['k'] == k else ''}", *row])
    title = "What each index says of each k (its choice in bold)"
    return [parts.paragraphs(lead), parts.charts(drawn), parts.table(title, ["k", *says], rows)]


def data(run: Run) -> Content:
    """Return the preparation of the rows, and findings about them."""
    preprocessing = run.account.get("preprocessing", {})
    columns = preprocessing.get("left_out", {})
    out = [[parts.named(name), why] for name, why in columns.items()]
    doubts = doubts_of(run)
    missing = [
        [parts.named(column), parts.named(site), f"{n:,.0f}"]
        for site, columns in preprocessing.get("missing", {}).items()
        for column, n in columns.items()
        if n
    ]
    stop = run.history.get("stop_reason")
    lines = [*run.account.get("prepared", ()), *([f"The search {stop}."] if stop else [])]
    return [
        parts.listed_items(lines),
        parts.heading("All doubts, the weightiest first") if doubts else None,
        parts.listed_items(doubts),
        parts.table("Columns left out", ["column", "why"], out, "texts"),
        parts.table("Missing values", ["column", "site", "values"], missing),
    ]


def taking_part(run: Run) -> Content:
    """Return which sites answered in which rounds."""
    if not run.rounds or not run.sites:
        return ()
    names = [site["name"] for site in run.sites]
    marks = [[_mark(done, name) for done in run.rounds] for name in names]
    why = reasons(run)
    rows = [
        [parts.named(name), str(own.count("yes")), str(own.count("missing")), why.get(name, "")]
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
    numbers = parts.table("Rounds of each site", header, rows, sites=True)
    header = ["round", "numbers that came", "steps"]
    questions = parts.table("What each round asked", header, by_round, "texts")
    hiding = parts.controls("site", len(names)) if len(names) > 1 else None
    return [hiding, parts.beside(chart, numbers), questions]


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
    table = parts.table("What left each site", header, rows, "texts", sites=True)
    return [parts.paragraphs(*_known(run)), table]


def _left(run: Run, i: int) -> list[Any]:
    """Return the line on what left a site."""
    columns = len(run.account.get("columns", run.model.get("columns", ())))
    site, hidden = run.sites[i], run.hidden[i]
    limits = [Limit.from_plain(each) for each in site.get("limits", ())]
    sent, held = site.get("values_sent", 0), (site.get("rows") or 0) * columns
    # Number of bytes of a number in a message.
    return [
        parts.named(site["name"]),
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
    python = ["from fedcluster import Model", Markup("\n\n"), load]
    return [
        parts.paragraphs(lead),
        [parts.code(each) for each in (command, python)],
        parts.paragraphs(["Columns: ", parts.names_listed(run.model["columns"]), "."]),
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
    table = parts.table("How it was made", ["parameter", "value"], facts, "texts")
    return [table, parts.details(question, parts.listed_items(steps)) if steps else None]


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
            parts.named(each["site"]),
            _signed(each.get("share"), 100, " %"),
            _signed(each["largest_shift"]),
            _signed(each["mean_shift"]),
            _signed(each["inertia_change"], 100, " %", "+"),
            str(each["alone"]),
        ]
        for each in sites
    ]
    return [parts.paragraphs(LEAD), parts.table("Influence of each site", HEADER, rows)]


def _signed(x: Any, factor: float = 1, unit: str = "", sign: str = "") -> str:
    """Return a number as the table shows it; an en dash if unknown."""
    return "–" if x is None else f"{factor * x:{sign}.3g}{unit}"


REPORT = "report.html"
PARTS: Mapping[str, tuple[str, str, Callable[[Run], Content]]] = {
    "found": ("Summary", "", lambda run: summary(run, sections.picture(run))),
    "profiles": ("Profiles", "Profiles of the clusters", sections.profiles),
    "sites": ("Sites", "Clusters by site", sections.by_site),
    "outcomes": ("Outcomes", "Outcomes that were not clustered by", sections.outcomes),
    "offsets": ("Offsets", "Offsets of sites", sections.offsets),
    "since": ("Since", "Clusters since the earlier fit", sections.since),
    "choice": ("Why this number", "Why this number of clusters", sections.why),
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
    shown, folded = (
        {key: parts.section(key, heading, *of(run)) for key, (_, heading, of) in group.items()}
        for group in (PARTS, FOLDED)
    )
    about = [run.name, run.date, f"fedcluster {run.version}" if run.version else ""]
    return page(
        title_of(run),
        " · ".join(filter(None, about)),
        shown,
        folded=folded,
    )


def page(
    title: str,
    name: str,
    sections: Mapping[str, Markup],
    *,
    folded: Mapping[str, Markup] = NOTHING,
    live: bool = False,
) -> str:
    """Return a page with its contents, style and script included.

    Parameters
    ----------
    title, name : str
        Its title, and the name of its subject.
    sections, folded : dict of str to Markup
        The sections, and those that are folded; empty ones are left out.
    live : bool, default=False
        Whether the page follows a run; a browser then reads it again.
    """
    style, script = (
        Markup((TEMPLATES / file).read_text("utf-8")) for file in ("page.css", "page.js")
    )
    there = [key for group in (sections, folded) for key, part in group.items() if part]
    return TEMPLATE.get_template("page.html").render(
        title=title,
        name=name,
        style=style,
        script=script,
        policy=_policy(style, script),
        contents=[(key, NAMES[key]) for key in there if key in NAMES],
        sections=list(sections.values()),
        folded=[part for part in folded.values() if part],
        live=live,
    )


def _policy(style: str, script: str) -> str:
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
    ]
    return "; ".join(rules)


def cards(run: Run) -> str:
    """Return the clusters as cards for a notebook, with their style."""
    style = (TEMPLATES / "page.css").read_text("utf-8")
    colours, _, rest = style.partition("* { box-sizing")
    own = rest.partition("/* cards */")[2].partition("/* end of cards */")[0]
    own = re.sub(r"^([.][^{}\n]+) [{]", _within, own, flags=re.MULTILINE)
    return TEMPLATE.get_template("cards.html").render(
        style=Markup(colours.replace(":root", ".fedcluster") + own),
        title=title_of(run),
        sure=sure(run),
        clusters=clusters(run),
    )


def _within(rule: re.Match[str]) -> str:
    """Return the selectors of a style rule, each restricted to the class of a notebook's cards."""
    return f"{', '.join(f'.fedcluster {each.strip()}' for each in rule[1].split(','))} {{"
