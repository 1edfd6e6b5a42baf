"""Sections of the report on the run: convergence, the choice of k, rounds, what left, use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedcluster.core import Limit
from fedcluster.metrics.indices import CHOOSING
from fedcluster.metrics.objectives import MEANINGS, round_name, shown_value
from fedcluster.report import charts
from fedcluster.report._sections import Content, chosen
from fedcluster.report.messages import limits_in_words, named_objective, privacy_lines
from fedcluster.report.run import Run, finite
from fedcluster.report.tables import counted, number, percent, shown
from fedcluster.texts.html import (
    Html,
    Table,
    beside,
    element,
    joined,
    listed_items,
    named,
    names_listed,
    paragraphs,
    titled,
)

BYTES = 8
"""Bytes of a number on its way."""


WON = "the best run, after its start"


def convergence(run: Run, of: str = WON) -> Content:
    """Return how the objective fell and the centres came to rest, and of which run it is."""
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
        titled(what, charts.curve(what, f"{about}.", rounds, ys, label="round", log=log))
        for what, ys, log in series
    )
    rows = [
        [str(done["round"]), done["step"], shown(x), shown(done["shift"])]
        for done, x in zip(history, objective, strict=True)
    ]
    meant = f" ({MEANINGS[name]})" if name in MEANINGS else ""
    numbers = Table("Round by round", ["round", "step", name, "shift of a centre"], rows).html()
    lead = (
        f"The {name}{meant} and the largest distance that a centre moved, for each round of "
        f"{of}. Both refer to the prepared rows."
    )
    return [paragraphs(lead), beside(joined(*curves), numbers)]


def choice(run: Run) -> Content:
    """Return why there are so many clusters: a curve for each index, and the verdict."""
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
        drawn.append(titled(f"{name}: {says[index]}", chart))
    lead = f"{verdict['reason']} The larger dot is the choice of each index."
    for line in verdict["table"]:
        cells = ((shown(line.get(index)), own == line["k"]) for index, own in says.items())
        row = [element("strong", value) if is_own else value for value, is_own in cells]
        rows.append([f"{line['k']}{' (chosen)' if line['k'] == k else ''}", *row])
    title = "What each index says of each k (its choice in bold)"
    curves = element("div", drawn, class_="charts") if any(drawn) else None
    doubts = listed_items(verdict["warnings"])
    return [paragraphs(lead), doubts, curves, Table(title, ["k", *says], rows).html()]


def data(run: Run) -> Content:
    """Return how the rows were prepared, and what was noticed in them."""
    preprocessing = run.account.get("preprocessing", {})
    lines = [
        *run.account.get("prepared", ()),
        *(f"But: {each}" for each in preprocessing.get("warnings", ())),
    ]
    missing = [
        [named(column), named(site), f"{n:,.0f}"]
        for site, columns in preprocessing.get("missing", {}).items()
        for column, n in columns.items()
        if n
    ]
    gaps = Table("Missing values", ["column", "site", "values"], missing).html()
    return [listed_items(lines), gaps]


def taking_part(run: Run) -> Content:
    """Return who answered in which round."""
    if not run.rounds or not run.sites:
        return ()
    names = [site["name"] for site in run.sites]
    marks = [[_mark(done, name) for done in run.rounds] for name in names]
    why = reasons(run)
    rows = [
        [named(name), str(own.count("yes")), str(own.count("missing")), why.get(name, "")]
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
    numbers = Table("Rounds of each site", header, rows).html(sites=True)
    header = ["round", "numbers that came", "steps"]
    questions = Table("What each round asked", header, by_round).html("texts")
    hiding = element("div", class_="controls", data_hide="site", data_count=len(names))
    return [hiding if len(names) > 1 else None, beside(chart, numbers), questions]


def _mark(done: Mapping[str, Any], name: str) -> str:
    if name in done["missing"]:
        return "missing"
    return "yes" if name in done["values_sent"] else ""


def reasons(run: Run) -> dict[str, str]:
    """Return why each site is missing in some rounds, by its name."""
    by_site: dict[str, Counter[str]] = {}
    for refusal in run.account.get("missing", ()):
        by_site.setdefault(refusal["site"], Counter())[refusal["reason"]] += 1
    return {
        site: "; ".join(f"{reason} ({counted(n, 'round')})" for reason, n in why.items())
        for site, why in by_site.items()
    }


def leaving(run: Run) -> Content:
    """Return what left each site, under which limits, and what that allows to know."""
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
    table = Table("What left each site", header, rows).html("texts", sites=True)
    return [paragraphs(*_known(run)), table]


def _left(run: Run, i: int) -> list[Any]:
    """Return the line on what left a site."""
    columns = len(run.account.get("columns", run.model.get("columns", ())))
    site, hidden = run.sites[i], run.hidden[i]
    limits = [Limit.from_plain(each) for each in site.get("limits", ())]
    sent, held = site.get("values_sent", 0), (site.get("rows") or 0) * columns
    return [
        named(site["name"]),
        f"{sent:,}",
        _bytes(sent * BYTES),
        number(float(f"{sent / held:.2g}")) if held else "–",
        percent(hidden),
        "; ".join(limits_in_words(limits)) or "none",
    ]


def _known(run: Run) -> list[str]:
    """Return what the numbers that left allow to know."""
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
    """Return how it is known how many rows the limits hid, where the rows are elsewhere."""
    if all("rows_held_back" in site for site in run.sites):
        return []
    if any(map(math.isfinite, run.hidden)):
        return [
            "Hidden rows are those that the sums of the profiles do not include: limits held them "
            "back, or they were left out."
        ]
    return ["Only the sites know how many rows the limits hid; fit --profile asks for it."]


def _bytes(n: int) -> str:
    """Return a number of bytes in few signs.

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
    """Return how new rows get their clusters."""
    if not run.k:
        return ()
    lead = (
        "The model assigns new rows to the clusters. It finds the columns of the fit by name and "
        "prepares them in the same way; other columns are ignored. Each site does this for its own "
        "rows."
    )
    command = "fedcluster predict model.json NEW.csv --out labels"
    load = 'labels = Model.load("model.json").predict(rows)'
    python = ("from fedcluster import Model", Html("\n\n"), load)
    return [
        paragraphs(lead),
        [element("pre", element("code", each), tabindex=0) for each in (command, python)],
        element("p", "Columns: ", names_listed(run.model["columns"]), "."),
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
    details = element("details", element("summary", question), listed_items(steps))
    table = Table("How it was made", ["parameter", "value"], facts).html("texts")
    return [table, details if steps else None]


def _parameter(value: Any) -> str:
    """Return a parameter as it is written; a long one is cut."""
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
    """Return how far each site moves the centres, the farthest first."""
    sites = run.history.get("influence") if run.history else None
    if not sites:
        return ()
    rows = [
        [
            named(each["site"]),
            _signed(each.get("share"), 100, " %"),
            _signed(each["largest_shift"]),
            _signed(each["mean_shift"]),
            _signed(each["inertia_change"], 100, " %", "+"),
            str(each["alone"]),
        ]
        for each in sites
    ]
    return [paragraphs(LEAD), Table("Influence of each site", HEADER, rows).html()]


def _signed(x: Any, factor: float = 1, unit: str = "", sign: str = "") -> str:
    """Return a number as the table shows it; an en dash where it is not known."""
    return "–" if x is None else f"{factor * x:{sign}.3g}{unit}"
