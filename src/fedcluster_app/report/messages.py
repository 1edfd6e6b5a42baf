"""The outcome of a job in sentences and tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster import metrics as measures
from fedcluster.core import Floats, Limit
from fedcluster.errors import listed
from fedcluster.metrics.clusters import BY_CHANCE, LOG_LIKELIHOOD, MEANINGS, shown_value
from fedcluster.model import Model
from fedcluster.model.run import read_run
from fedcluster.privacy.limits import STEP, is_rounded
from fedcluster.texts import Table, counted, number, some_of
from fedcluster_app.report import tables
from fedcluster_app.report.tables import SiteRecord

LIMITS = {
    "MinRows": "a site with fewer than {} rows sends nothing",
    "MinClusterSize": "a site does not send a cluster of fewer than {} of its rows",
}
BUDGET = "noise on every answer, within epsilon {epsilon} at delta {delta} over all runs"
ROUNDED = f"counts of rows are rounded to {STEP}"
GROUPS = (
    "rows are seen in groups of at least {p}, and a site of fewer than {min_rows} sends nothing"
)


def summary_line(content: Mapping[str, Any]) -> str:
    """Return a fit in one line, from the content of ``history.json``."""
    return (
        f"{counted(content['n_clusters'], 'cluster')}, {objective(content)}, "
        f"{content['stop_reason']}; {counted(content['rounds'], 'round')} in all with "
        f"{counted(len(content['sites']), 'site')}. Algorithm {content['algorithm']}, "
        f"seed {content['seed']}."
    )


def objective(content: Mapping[str, Any]) -> str:
    """Return the value of the objective of a fit, from the content of ``history.json``.

    Examples
    --------
    >>> objective({"model": "k-means", "inertia": 12.5})
    'inertia 12.5'
    >>> objective({"model": "mixture", "inertia": 12.5})
    'log-likelihood -12.5'
    >>> objective({"model": "k-means", "inertia": 12.5, "objective": "fuzzy-objective"})
    'fuzzy-objective 12.5'
    >>> objective({"inertia": 12.5, "inertia_error": 0.04}), objective(
    ...     {"inertia": 12.5, "inertia_error": None})
    ('inertia 12.5 (of rows to about 4 %)', 'inertia 12.5 (of groups; of rows not known)')
    """
    inertia = math.nan if content["inertia"] is None else content["inertia"]
    name, error = named_objective(content), content.get("inertia_error", 0.0)
    shown = f"{name} {number(shown_value(name, inertia))}"
    if error is None:
        return f"{shown} (of groups; of rows not known)"
    return f"{shown} (of rows to about {100 * error:.2g} %)" if error else shown


def named_objective(content: Mapping[str, Any]) -> str:
    """Return the name of the objective of a fit, from the content of ``history.json``."""
    usual = LOG_LIKELIHOOD if content.get("model") == "mixture" else "inertia"
    return str(content.get("objective", usual))


def notes(
    sites: Sequence[SiteRecord], absent_too: str = " It has labels all the same."
) -> list[str]:
    """Return sentences on what left the sites and what was held back.

    ``absent_too`` ends the sentence on a site that took no part.
    """
    lines = [_limits_in_force(sites)]
    absent = [site for site in sites if not site.took_part]
    held = [site for site in sites if site.took_part and site.rows_held_back]
    lone = [site for site in sites if site.lone_rows]
    for site in absent[:5]:
        rows = "its only row" if site.rows == 1 else f"all its {site.rows:,} rows"
        why = f"its limits held back {rows}.{absent_too}"
        if not (site.rows or site.limits):
            why = "it has no rows of positive weight."
        lines.append(f"Site {site.name} took no part: {why}")
    if absent[5:]:
        lines.append(f"Nor did {counted(len(absent) - 5, 'more site')}.")
    if held:
        some = [f"{counted(site.rows_held_back, 'row')} of {site.name}" for site in held]
        lines.append(f"In some rounds, limits held back up to {some_of(some)}.")
    elif not absent:
        lines.append("No row was held back.")
    if lone:
        first, *others = lone
        some = [f"up to {first.lone_rows} in a message of {first.name}"]
        some += [f"{site.lone_rows} of {site.name}" for site in others]
        lines.append(
            f"Some sums were over a single row ({some_of(some)}), which reveals that row to "
            "whoever reads the message. --min-cluster-size 2 holds such sums back."
        )
    return lines + _more_than_held(sites)


def privacy_lines(content: Mapping[str, Any], *, exact: bool = False) -> list[str]:
    """Return the privacy cost of a fit in lines; none for a fit without a budget.

    ``exact`` adds that files other than the model hold numbers from the rows without noise.

    Examples
    --------
    >>> spent = {"epsilon": 0.9, "delta": 1e-6, "group_size": 1, "rho": 0.028, "answers": 4}
    >>> line = privacy_lines({"privacy": {**spent, "budget": 1.0}})[0]
    >>> line[:63], line[-24:]
    ('Privacy budget spent: epsilon 0.9 of 1 at delta 1e-06 for each ', ' in 4 answers of a site.')
    """
    if not (spent := content.get("privacy")):
        return []
    whose = "each row (each person, where a column says whose the rows are)"
    if spent["group_size"] > 1:
        whose = f"each person with up to {spent['group_size']:g} rows"
    line = (
        f"Privacy budget spent: epsilon {number(spent['epsilon'])} of {spent['budget']:g} "
        f"at delta {spent['delta']:g} for {whose}, in {spent['answers']:g} answers of a site."
    )
    more = (
        "Only model.json is covered by it. Labels, history.json and report.html hold exact numbers "
        "of the rows here: do not pass them on."
    )
    return [line, more] if exact else [line]


def _more_than_held(sites: Sequence[SiteRecord]) -> list[str]:
    """Return a sentence on sites that sent more numbers than they hold, if any."""
    more = [site for site in sites if 0 < site.values_held < site.values_sent]
    if not more:
        return []
    most = max(more, key=lambda site: site.values_sent / site.values_held)
    return [
        f"{counted(len(more), 'site')} sent more numbers than their rows have values, for "
        f"example {most.name} {most.values_sent:,} for {most.values_held:,}, because sums are sent "
        "for every cluster, start and round. Fewer clusters or --algorithm lloyd send less."
    ]


def _limits_in_force(sites: Sequence[SiteRecord]) -> str:
    """Return the limits in plain words, by site if they differ."""
    by_limit: dict[str, list[str]] = {}
    for site in sites:
        by_limit.setdefault("; ".join(limits_in_words(site.limits)), []).append(site.name)
    if len(by_limit) < 2:
        return limits_line(sites[0].limits if sites else ())
    each = [f"{limit or 'none'} ({some_of(names)})" for limit, names in by_limit.items()]
    return f"Limits in force: {'; '.join(each)}."


def limits_line(limits: Sequence[Limit]) -> str:
    """Return the limits of a site in one sentence."""
    words = "; ".join(limits_in_words(limits))
    none = "No limit is in force: a single row may leave its site."
    return f"Limits in force: {words}." if words else none


def limits_in_words(limits: Sequence[Limit]) -> list[str]:
    """Return limits in words; those that hold nothing back are left out."""
    words = []
    for limit in limits:
        if limit.name == "Groups":
            words.append(GROUPS.format(**dict(limit.parameters)))
            words += [ROUNDED] if is_rounded([limit]) else []
            continue
        parameters = dict(limit.parameters)
        if limit.name == "PrivacyBudget" and {"epsilon", "delta"} <= parameters.keys():
            words.append(BUDGET.format(**parameters))
            continue
        if limit.name not in LIMITS:
            words.append(str(limit))
            continue
        [(_, smallest)] = limit.parameters
        if smallest > 1:
            words.append(LIMITS[limit.name].format(smallest))
    return words


def ignored_lines(ignored: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns of each file that a model does not use, one line for equal ones."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for site, columns in ignored.items():
        by_columns.setdefault(tuple(columns), []).append(site)
    return [
        f"Ignored at {some_of(sites)}: {'column' if len(columns) == 1 else 'columns'} "
        f"{some_of(columns, most=8)}."
        for columns, sites in by_columns.items()
        if columns
    ]


def written_lines(out: Path | None, files: Sequence[str], *, most_files: int = 6) -> list[str]:
    """Return the line that names the written files, if any, or counts those in a folder.

    ``most_files``: largest number of written files that a line names.

    Examples
    --------
    >>> out = Path("out")
    >>> written_lines(out, ["model.json", "labels/north.csv", "labels/south.csv"])
    ['Wrote out/model.json and out/labels (2 files).']
    >>> written_lines(out, [f"site-{i}.csv" for i in range(20)])
    ['Wrote out (20 files).']
    """
    if out is None:
        return []
    shown = [str(out / file) for file in files if "/" not in file]
    if len(shown) > most_files:
        shown = [f"{out} ({len(shown)} files)"]
    for folder in dict.fromkeys(file.rpartition("/")[0] for file in files if "/" in file):
        held = [file for file in files if file.startswith(f"{folder}/")]
        one = len(held) == 1
        shown.append(str(out / held[0]) if one else f"{out / folder} ({len(held)} files)")
    return [f"Wrote {some_of(shown, most=most_files)}."]


def favoured(verdict: Mapping[str, Any]) -> str:
    """Describe how clearly a number of clusters was chosen."""
    k, says = verdict["n_clusters"], verdict["says"]
    if verdict["warnings"]:
        return f"{k} is the best answer, with doubts (below)"
    known = [n for index, n in says.items() if index in measures.CHOOSING]
    other = sorted({n for n in known if n != k})
    if other:
        agree = sum(n == k for n in known)
        return (
            f"{agree} of {len(known)} indices say {k}; others say {listed(list(map(str, other)))}"
        )
    return f"The rows clearly favour {k} over the other numbers tried"


SILHOUETTE = "squared-silhouette"
STRUCTURES = (
    (0.71, "Clearly separated", "strong"),
    (0.51, "Reasonably separated", "reasonable"),
    (0.26, "Weakly separated", "weak"),
    (-1.0, "Overlapping", "below weak"),
)
"""Silhouettes, with their meaning and their name in Kaufman & Rousseeuw (1990, p. 88)."""
AGREEMENTS = ((0.9, "excellent"), (0.8, "good"), (0.65, "moderate"), (-1.0, "poor"))
"""Adjusted Rand indices, with the name of the agreement in Steinley (2004)."""
JUDGED = {SILHOUETTE, BY_CHANCE, "ari", "inertia", "within", "total"}
"""Indices that have sentences of their own."""
SUMS = (
    "inertia is the sum of squared distances of the rows to their centres, within that to the "
    "means of the clusters' rows: the same where the centres are these means. Both fall with every "
    "further cluster, so that a small one is no sign of a good k."
)
OTHERS = (
    "The other indices have no thresholds in their sources: compare them between models of the "
    "same rows, the higher or lower the better as the column says."
)


FIRST = (SILHOUETTE, BY_CHANCE, "ari", "nmi", "purity", "mean-site-ari", "inertia", "within")
"""Indices that a table shows first, after users' own."""


def by_interest(names: Iterable[str]) -> list[str]:
    """Return names of indices in their order in tables for people.

    Examples
    --------
    >>> by_interest(["inertia", "wsse", "squared-silhouette", "my_module.Mine()"])
    ['my_module.Mine()', 'squared-silhouette', 'inertia', 'wsse']
    """
    places = {name: place for place, name in enumerate(dict.fromkeys((*FIRST, *measures.METRICS)))}
    return sorted(names, key=lambda name: places.get(name, -1))


def better(index: str, metrics: Sequence[Any] = ()) -> str | None:
    """Return whether a higher or a lower score is better, if either is.

    Parameters
    ----------
    index : str
        The name of an index, or a user's own metric as text.
    metrics : sequence of Metric
        The user's own metrics.
    """
    own = {str(metric): bool(metric.maximise) for metric in metrics}
    if index in own:
        higher: bool | None = own[index]
    elif index in MEANINGS:
        higher = index == LOG_LIKELIHOOD
    else:
        higher = measures.METRICS[index].maximise if index in measures.METRICS else None
    return {True: "higher", False: "lower", None: None}[higher]


def meaning(scores: Mapping[str, float]) -> list[str]:
    """Return the meaning of scores, a sentence or two each, with the source of each threshold.

    Examples
    --------
    >>> meaning({"squared-silhouette": 0.3, "squared-silhouette-by-chance": 0.4})
    ['No structure beyond chance: the squared silhouette is 0.3; rows of a single cloud, cut into \
as many clusters, reach up to 0.4.']
    >>> [clear, *_] = meaning({"squared-silhouette": 0.95, "ari": 0.93})
    >>> clear.split(":")[0]
    'Clearly separated'
    """
    lines = _separation(scores.get(SILHOUETTE, math.nan), scores.get(BY_CHANCE, math.nan))
    lines += _agreement(scores.get("ari", math.nan))
    if {"inertia", "within"} <= scores.keys():
        lines.append(SUMS)
    lines += [
        f"{name} is {MEANINGS[name]}."
        for name in scores
        if name in MEANINGS.keys() - measures.METRICS
    ]
    return [*lines, OTHERS] if scores.keys() & measures.METRICS.keys() - JUDGED else lines


def _separation(silhouette: float, chance: float) -> list[str]:
    """Return the meaning of a silhouette, compared with that of a single cloud."""
    if math.isnan(silhouette):
        return []
    cloud = f"rows of a single cloud, cut into as many clusters, reach up to {chance:.2g}"
    if silhouette <= chance:
        return [f"No structure beyond chance: the squared silhouette is {silhouette:.2g}; {cloud}."]
    plain = round(1 - math.sqrt(1 - max(silhouette, 0.0)), 2)
    _, words, name = next(each for each in STRUCTURES if plain >= each[0])
    # Distance from a perfect silhouette, relative to that by chance, above which a silhouette is
    # hardly better than chance.
    hardly = 1 - silhouette > 0.93 * (1 - chance)
    words = f"{words}, hardly more than chance" if hardly else words
    beyond = "" if math.isnan(chance) else f" By chance, {cloud}."
    return [
        f"{words}: the mean silhouette is about {plain:.2g} ({name}; at most 1; strong from 0.71, "
        "reasonable from 0.51, weak from 0.26: Kaufman & Rousseeuw 1990, p. 88), as the squared "
        f"one is {silhouette:.2g}.{beyond}"
    ]


def _agreement(ari: float) -> list[str]:
    """Return the meaning of an adjusted Rand index."""
    if math.isnan(ari):
        return []
    name = next(name for least, name in AGREEMENTS if ari >= least)
    return [
        f"The agreement with the labels is {name}: an adjusted Rand index of {ari:.2g}, where "
        "chance gives 0. Excellent is 0.9 and more, good 0.8, moderate 0.65 (Steinley 2004)."
    ]


HOLDING_ALL = ("comparison.json", "profiles.json", "scores.json", "history.json")


def shown(outcome: Mapping[str, Any], width: int) -> list[Table | str]:
    """Return the outcome of a job as tables and lines for a screen of a given width."""
    parts: list[Table | str] = [*outcome.get("prepared", ()), *_centers(outcome, width)]
    parts += tables.profiles_shown(outcome, width, file_of(outcome))
    parts += outcome.get("comparison", {}).get("sentences", ())
    if "weights" in outcome and "profiles" not in outcome:
        parts.append(tables.names_table(*_names_and_sizes(outcome)))
    missing = outcome.get("missing", [])
    parts += _sites(outcome.get("sites", []), missing)
    if verdict := outcome.get("selection") or ("says" in outcome and outcome):
        parts += _verdict(verdict, str(file_of(outcome) or "--json"))
    elif "scores" in outcome:
        known = {name: score for name, score in outcome["scores"].items() if score is not None}
        better = outcome["better"]
        scores = tuple(
            (name, better[name] or "", number(known[name])) for name in by_interest(known)
        )
        parts.append(Table("All sites together", ("index", "better", "score"), scores))
        parts += outcome["meaning"]
    if "stop_reason" in outcome:
        measured = "" if outcome["inertia"] is None else f"; {objective(outcome)}"
        parts.append(f"{outcome['rounds']} rounds, {outcome['stop_reason']}{measured}.")
    return [*parts, *privacy_lines(outcome), *_absences(missing)[:5], *_written(outcome)]


def _sites(sites: Sequence[Mapping[str, Any]], missing: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the table of the sites, if there are any."""
    missed = Counter(refusal["site"] for refusal in missing)
    rows = tuple(
        (s["name"], _rows_in_words(s), f"{s['values_sent']:,}", str(missed[s["name"]]))
        for s in sites
    )
    header = ("site", "rows", "numbers sent", "rounds missed")
    return [Table("Sites", header, rows)] if sites else []


def _rows_in_words(site: Mapping[str, Any]) -> str:
    """Return the number of rows of a site, unknown under secure sums or a privacy budget."""
    return "not told" if site["weight"] is None else number(site["weight"])


def file_of(outcome: Mapping[str, Any]) -> Path | None:
    """Return the file with the complete outcome, None if there is none."""
    files = [name for name in outcome.get("files", ()) if name in HOLDING_ALL]
    return Path(outcome["out"]) / files[0] if files else None


def _absences(missing: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rounds that sites missed and why, in one line per site and reason.

    Examples
    --------
    >>> away = {"site": "west", "reason": "not connected"}
    >>> _absences([{**away, "exchange": n} for n in (1, 2, 3, 5)])
    ['Rounds 1, 2, 3 and 5 without west: not connected.']
    >>> _absences([{**away, "exchange": n} for n in range(4, 44)])
    ['40 rounds from 4 to 43 without west: not connected.']
    """
    rounds: dict[tuple[str, str], list[str]] = {}
    for refusal in missing:
        about = (refusal["site"], refusal["reason"])
        rounds.setdefault(about, []).append(str(refusal["exchange"]))
    lines = []
    for (site, reason), numbers in rounds.items():
        when = f"{'Round' if len(numbers) == 1 else 'Rounds'} {listed(numbers)}"
        if len(numbers) > 6:
            when = f"{len(numbers)} rounds from {numbers[0]} to {numbers[-1]}"
        lines.append(f"{when} without {site}: {reason}.")
    return lines


def _centers(outcome: Mapping[str, Any], width: int) -> list[Table]:
    """Return the centres of prepared rows, in the units of the columns."""
    if not {"prepared", "privacy"} & outcome.keys() or "model.json" not in outcome["files"]:
        return []
    path = Path(outcome["out"]) / "model.json"
    # the name as given on the command line
    own = [outcome["algorithm"]] if "." in outcome.get("algorithm", "") else []
    model = Model.load(path, own)
    if model.preprocessor is None:
        return []
    table = tables.centers_table(model.preprocessor, model.centers, model.weights, width, str(path))
    return [table] if table else []


def _names_and_sizes(outcome: Mapping[str, Any]) -> tuple[Sequence[str], Floats]:
    """Return the names and the numbers of rows of the clusters as in the report."""
    if "model.json" not in outcome["files"]:
        return [""] * len(outcome["weights"]), np.array(outcome["weights"])
    run = read_run(Path(outcome["out"]))
    return run.names, run.sizes


def _verdict(verdict: Mapping[str, Any], elsewhere: str) -> list[Table | str]:
    """Return the scores of each index, the verdict, and the doubts about it."""
    n, scores = verdict["n_clusters"], {line["k"]: line for line in verdict["table"]}
    return [
        tables.index_table(n, verdict["rule"], verdict["says"], scores, elsewhere),
        tables.verdict_line(n, verdict["reason"]),
        *(f"But: {doubt}" for doubt in verdict["warnings"]),
    ]


def _written(outcome: Mapping[str, Any]) -> list[str]:
    lines = [f"Wrote {', '.join(outcome['files'])} to {outcome['out']}."]
    if "model.json" in outcome["files"]:
        kept = outcome["model_at"]
        lacking = [s["name"] for s in outcome.get("sites", []) if s["name"] not in kept]
        if kept:
            where = ", ".join(kept)
            lines.append(
                f"The model is at {where}; each labels its own rows by it from now on, and tells "
                "nobody how that goes."
            )
        if lacking:
            lines.append(f"It is not at {', '.join(lacking)}: send model.json there.")
    return lines
