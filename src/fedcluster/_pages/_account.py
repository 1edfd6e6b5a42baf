"""Sections of the report on the run: convergence, quality, rounds, what left the sites, use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedcluster._html import Html, element, joined
from fedcluster._pages import _charts as charts
from fedcluster._pages._parts import (
    Cell,
    beside,
    listed_of,
    named,
    paragraphs,
    percent,
    section,
    table,
    titled,
)
from fedcluster._pages._run import Run
from fedcluster._pages._sections import chosen
from fedcluster._report._messages import counted, limits_in_words, named_objective, privacy_lines
from fedcluster._report._tables import number
from fedcluster.core import Limit
from fedcluster.metrics.indices import CHOOSING
from fedcluster.metrics.objectives import MEANINGS, round_name, shown_value

BYTES = 8
"""Bytes of a number on its way."""


WON = "the best run, after its start"


def finite(x: Any) -> float:
    """Return a number of a file, where null stands for nan."""
    return math.nan if x is None else float(x)


def shown(x: Any) -> str:
    """Return a number as a table shows it; an en dash where there is none."""
    return number(finite(x)) if math.isfinite(finite(x)) else "–"


def convergence(run: Run, of: str = WON) -> Html:
    """Return how the objective fell and the centres came to rest, and of which run it is."""
    history = run.history["history"] if run.history else ()
    if not history:
        return Html()
    name = round_name(named_objective(run.history))
    rounds = [done["round"] for done in history]
    objective = [shown_value(name, finite(done["inertia"])) for done in history]
    shift = [finite(done["shift"]) for done in history]
    about = _begins(name, objective)
    what = f"{name.capitalize()} by round"
    falling = charts.curve(what, f"{about}.", rounds, objective, label="round")
    moves = "Largest shift of a centre, logarithmic"
    moving = charts.curve(moves, f"{about}.", rounds, shift, label="round", log=True)
    drawn = joined(titled(what, falling), titled(moves, moving))
    rows = [
        [str(done["round"]), done["step"], shown(x), shown(done["shift"])]
        for done, x in zip(history, objective, strict=True)
    ]
    meant = f" ({MEANINGS[name]})" if name in MEANINGS else ""
    header = ["round", "step", name, "shift of a centre"]
    numbers = table("Round by round", header, rows)
    lead = (
        f"The {name}{meant} and the largest distance that a centre moved, for each round of "
        f"{of}. Both refer to the prepared rows."
    )
    return section("convergence", "How it converged", paragraphs([lead]), beside(drawn, numbers))


def _begins(name: str, objective: Sequence[float]) -> str:
    """Return the description of the curves of a run."""
    known = [x for x in objective if math.isfinite(x)]
    rounds = counted(len(objective), "round")
    if not known:
        return rounds
    return f"{rounds}; the {name} begins at {number(known[0])} and ends at {number(known[-1])}"


def choice(run: Run) -> Html:
    """Return why there are so many clusters: a curve for each index, and the verdict."""
    verdict = chosen(run)
    if not verdict:
        return Html()
    says, k = verdict["says"], verdict["n_clusters"]
    ks = [line["k"] for line in verdict["table"]]
    drawn = []
    for index in [name for name in says if name in CHOOSING]:
        label = CHOOSING[index].label.removeprefix("the ")
        name = f"{label[:1].upper()}{label[1:]}"
        values = [finite(line.get(index)) for line in verdict["table"]]
        about = f"Over k from {ks[0]} to {ks[-1]}; it says {says[index]}."
        chart = charts.curve(name, about, ks, values, label="clusters", marked=says[index])
        drawn.append(titled(f"{name}: {says[index]}", chart))
    lead = f"{verdict['reason']} The larger dot is the choice of each index."
    header = ["k", *says]
    rows = [
        [Cell(f"{line['k']}{' (chosen)' if line['k'] == k else ''}"), *_choices(line, says)]
        for line in verdict["table"]
    ]
    numbers = table("What each index says of each k (its choice in bold)", header, rows)
    doubts = listed_of(verdict["warnings"])
    curves = element("div", drawn, class_="charts") if any(drawn) else Html()
    return section("choice", "The number of clusters", paragraphs([lead]), doubts, curves, numbers)


def _choices(line: Mapping[str, Any], says: Mapping[str, int]) -> Iterator[Any]:
    """Yield what each index says of one k, its own choice in bold."""
    for index, own in says.items():
        value = shown(line.get(index))
        yield element("strong", value) if own == line["k"] else value


def data(run: Run) -> Html:
    """Return what was done to the rows, and what was met in them."""
    told = run.account.get("preprocessing", {})
    lines = [
        *run.account.get("prepared", ()),
        *(f"But: {each}" for each in told.get("warnings", ())),
    ]
    missing = [
        [named(column), named(site), f"{n:,.0f}"]
        for site, columns in told.get("missing", {}).items()
        for column, n in columns.items()
        if n
    ]
    gaps = table("Missing values", ["column", "site", "values"], missing)
    return section("data", "The data", listed_of(lines), gaps)


def taking_part(run: Run) -> Html:
    """Return who answered in which round."""
    if not run.rounds or not run.sites:
        return Html()
    names = [site["name"] for site in run.sites]
    marks = [[_mark(done, name) for done in run.rounds] for name in names]
    why = reasons(run)
    rows = [
        [
            named(name),
            str(marks[i].count("yes")),
            str(marks[i].count("missing")),
            why.get(name, ""),
        ]
        for i, name in enumerate(names)
    ]
    about = f"{counted(len(names), 'site')} and {counted(len(run.rounds), 'round')}"
    chart = charts.presence("Who answered in which round", f"{about}.", names, marks)
    header = ["site", "rounds answered", "missed", "why"]
    numbers = table("Rounds of each site", header, rows, sites=True)
    return section(
        "rounds", "Who took part in which round", _hiding(run), beside(chart, numbers), _asked(run)
    )


def _asked(run: Run) -> Html:
    """Return what each round asked."""
    rows = [
        [str(done["round"]), f"{sum(done['values_sent'].values()):,}", _steps(done["tasks"])]
        for done in run.rounds
    ]
    header = ["round", "numbers that came", "steps"]
    return table("What each round asked", header, rows, class_="texts")


def _hiding(run: Run) -> Html | None:
    """Return the place of the controls that hide sites."""
    if len(run.sites) < 2:
        return None
    return element("div", class_="controls", data_hide="site", data_count=len(run.sites))


def _mark(done: Mapping[str, Any], name: str) -> str:
    if name in done["missing"]:
        return "missing"
    return "yes" if name in done["values_sent"] else ""


def _steps(tasks: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {step}" if n > 1 else step for step, n in tasks.items())


def reasons(run: Run) -> dict[str, str]:
    """Return why each site is missing in some rounds, as it was said."""
    by_site: dict[str, Counter[str]] = {}
    for refusal in run.account.get("missing", ()):
        by_site.setdefault(refusal["site"], Counter())[refusal["reason"]] += 1
    return {
        site: "; ".join(f"{reason} ({counted(n, 'round')})" for reason, n in why.items())
        for site, why in by_site.items()
    }


def leaving(run: Run) -> Html:
    """Return what left each site, under which limits, and what that allows to know."""
    if not run.rounds:
        return Html()
    rows = [_left(run, i) for i in range(len(run.sites))]
    header = [
        "site",
        "numbers sent",
        "bytes",
        "numbers per value held",
        "most rows hidden",
        "limits",
    ]
    shown_table = table("What left each site", header, rows, sites=True, class_="texts")
    return section("leaving", "What left the sites", paragraphs(_known(run)), shown_table)


def _left(run: Run, i: int) -> list[Any]:
    """Return the line on what left a site."""
    columns = len(run.account.get("columns", run.model.get("columns", ())))
    site, hidden = run.sites[i], run.hidden[i]
    sent, held = site.get("values_sent", 0), (site.get("rows") or 0) * columns
    return [
        named(site["name"]),
        f"{sent:,}",
        _bytes(sent * BYTES),
        number(float(f"{sent / held:.2g}")) if held else "–",
        percent(hidden),
        _limits(site),
    ]


def _limits(site: Mapping[str, Any]) -> str:
    """Return the limits of a site in words."""
    limits = [Limit.from_plain(each) for each in site.get("limits", ())]
    return "; ".join(limits_in_words(limits)) or "none"


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


def prediction(run: Run) -> Html:
    """Return how new rows get their clusters."""
    if not run.k:
        return Html()
    lead = (
        "The model assigns new rows to the clusters. It finds the columns of the fit by name and "
        "prepares them in the same way; other columns are ignored. Each site does this for its own "
        "rows."
    )
    command = "fedcluster predict model.json NEW.csv --out labels"
    python = 'from fedcluster import Model\n\nlabels = Model.load("model.json").predict(rows)'
    columns = [part for name in run.model["columns"] for part in (named(name), ", ")][:-1]
    return section(
        "prediction",
        "Clusters of new rows",
        paragraphs([lead]),
        [_code(command), _code(python)],
        element("p", "Columns: ", columns, "."),
    )


def _code(said: str) -> Html:
    lines = [part for line in said.split("\n") for part in (line, Html("\n"))][:-1]
    return element("pre", element("code", lines), tabindex=0)


def origin(run: Run) -> Html:
    """Return the version, the seed and the parameters."""
    facts: list[Sequence[Any]] = []
    if "fedcluster_version" in run.model:
        facts.append(["fedcluster", run.model["fedcluster_version"]])
    facts.append(["seed", run.account.get("seed", run.model.get("seed"))])
    given = {k: v for k, v in run.model.get("algorithm", {}).items() if k != "steps"}
    facts += [[name, _parameter(value)] for name, value in given.items()]
    steps = run.model.get("algorithm", {}).get("steps", ())
    asked = element(
        "details",
        element("summary", f"What the sites were asked: {counted(len(steps), 'step')}"),
        listed_of(steps),
    )
    shown_table = table("How it was made", ["parameter", "value"], facts, class_="texts")
    return section("origin", "Version, seed and parameters", shown_table, asked if steps else None)


def _parameter(value: Any) -> str:
    """Return a parameter as it is written; a long one is cut."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{k}={_parameter(v)}" for k, v in value.items() if k != "name" and v)
        return f"{value.get('name', '')}({inner})" if "name" in value else f"{{{inner}}}"
    said = str(value)
    return said if len(said) <= 200 else f"{said[:200]}…"
