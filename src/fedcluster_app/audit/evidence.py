"""Evidence about a site: what its protection lets out, what has left it, what attacks read.

The checks, their parameters and their outcomes are named as in ACRO, a tool by which research data
centres check outputs.

J. Smith, R. J. Preen, M. Albashir, F. Ritchie, E. Green, S. Davy, P. Stokes & S. Bacon, SACRO:
semi-automated checking of research outputs, UNECE Expert Meeting on Statistical Data
Confidentiality (2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster import __version__
from fedcluster.core.files import atomic_write, json_text
from fedcluster.options.refusals import refused
from fedcluster.privacy.groups import Examined
from fedcluster.privacy.limits import STRICT_P, Dominance, Rules
from fedcluster.texts import Table, counted, number, percent, printable
from fedcluster_app.audit.audit import Audit, sentences, unpromised
from fedcluster_app.audit.audit import content as audit_content
from fedcluster_app.report.html import parts
from fedcluster_app.report.page import page
from fedcluster_app.secure.cohort import earlier_cohorts
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.logs import answers_of, budget_content, run_records, spent_line
from fedcluster_app.site.membership import (
    ROWS_CHANGED,
    Membership,
    site_budget,
    site_log,
    site_permits,
)
from fedcluster_app.trust.audit_log import read_log, verify
from fedcluster_app.trust.identity import IDENTITY
from fedcluster_app.trust.site_state import STATE_FILE, SiteState

DEFAULT = Dominance()
ACRO = {
    "safe_threshold": STRICT_P,
    "safe_nk_n": DEFAULT.largest,
    "safe_nk_k": DEFAULT.share,
    "safe_pratio_p": DEFAULT.rest,
}
"""Parameters of the checks: the defaults of ACRO."""
RULES = ("nk-rule", "p-ratio", "all-values-are-same")
"""Checks of each column, by group."""


def evidence(site: SiteFile, audits: Sequence[Audit] = ()) -> dict[str, Any]:
    """Return the evidence about the protection of a site as JSON-compatible values.

    It contains no value of a row. It is for the site's owner only, because it has the shares of the
    largest contributors.

    Parameters
    ----------
    site : SiteFile
        The site.
    audits : sequence of Audit
        Audits of the site as it is; the first one is used.

    Raises
    ------
    InputError
        If the rows cannot be read, or its log is not in order.
    """
    content: dict[str, Any] = {
        "site": site.name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "fedcluster": __version__,
        "parameters": ACRO,
        "protection": _protection(site),
    }
    if content["protection"] == "groups":
        content |= _groups(site)
    else:
        content |= {"checks": [_of_limits(site)] if site.privacy is None else []}
    if site.federation:
        content |= _federation(site)
    if audits:
        content["audit"] = audit_content(audits)["audits"][0]
        content["audit"]["summary"] = next(sentences(audits))
    return {**content, "statement": statement(content)}


def _protection(site: SiteFile) -> str:
    """Return the protection of a site's rows in a federation over a network."""
    if site.privacy is not None:
        return "privacy budget"
    return "limits" if site.protection == "limits" else "groups"


def _groups(site: SiteFile) -> dict[str, Any]:
    """Return the sums over groups that every question reads, with checks of them."""
    if site.has_means:
        raise refused("means-evidence", where=f"{site.path}: ")
    data, examined = site.grouping.examined(site.rows(raw=True), all_columns=True)
    smallest = int(examined.counts.min()) if len(examined.counts) else None
    kinds = {column.name: column.kind for column in data.columns}
    columns = [_column(examined, name, kinds[name]) for name in examined.columns]
    unit = "row" if site.group_column is None else "person"
    return {
        "unit": unit,
        "groups": {
            "p": site.groups.p,
            "groups": len(examined.counts),
            "smallest": smallest,
            "in_groups": int(examined.counts.sum()),
            "units": examined.n_units,
        },
        "columns": columns,
        "checks": [
            _threshold(site.groups.p, smallest, unit),
            _single(site.groups.p, columns, unit),
            *(_rule(rule, columns, len(examined.counts), unit) for rule in RULES),
        ],
    }


def _column(examined: Examined, name: str, kind: str) -> dict[str, Any]:
    """Return the largest shares of a column in a group, and the groups that each rule finds."""
    found: dict[str, Any] = {"column": name, "holds": kind}
    if name in examined.sums:
        j = examined.sums.index(name)
        one, two = examined.shares[:, :, j].T
        first, second, total = examined.amounts[:, :, j].T
        few = (total > 0) & (total - first - second < ACRO["safe_pratio_p"] * first)
        found |= {
            "largest_share": float(one.max(initial=0.0)),
            "two_largest_share": float(two.max(initial=0.0)),
            "single_share": float(examined.single[:, j].max(initial=0.0)),
            "nk-rule": int(np.count_nonzero(two > ACRO["safe_nk_k"])),
            "p-ratio": int(np.count_nonzero(few)),
        }
    else:
        shares = ("largest_share", "two_largest_share", "single_share")
        found |= {**dict.fromkeys(shares), "nk-rule": 0, "p-ratio": 0}
    alike = examined.agree[:, examined.columns.index(name)]
    return {**found, "all-values-are-same": int(np.count_nonzero(alike))}


def _threshold(p: int, smallest: int | None, unit: str) -> dict[str, str]:
    """Return the check of the number of units in every number that a question reads."""
    least = ACRO["safe_threshold"]
    if smallest is None:
        return _check("threshold", "pass", f"there is no group of {p} {unit}s, so nothing leaves")
    outcome = "fail" if smallest < p else "pass" if p >= least else "review"
    below = "" if p >= least else f"; ACRO's default is {least}"
    summary = f"every group has at least {p} {unit}s, the smallest {smallest}{below}"
    return _check("threshold", outcome, summary)


def _single(p: int, columns: Sequence[Mapping[str, Any]], unit: str) -> dict[str, str]:
    """Return the check that no value is alone in a sum among values that many share."""
    most = _largest(columns, "single_share")[0]
    outcome = "pass" if round(most, 9) <= round(1 / (1 + Rules.hides), 9) else "fail"
    summary = (
        f"a value that fewer than {p} {unit}s share is at most {percent(most)} of what a sum adds "
        "to values that more share"
    )
    return _check("single-value", outcome, summary)


def _largest(columns: Sequence[Mapping[str, Any]], share: str) -> tuple[float, str]:
    """Return the largest of the shares of a kind, and its column."""
    return max(((c[share] or 0.0, c["column"]) for c in columns), default=(0.0, ""))


FOUND = {
    "nk-rule": f"two {{}}s make up more than {percent(ACRO['safe_nk_k'])} of {{}}",
    "p-ratio": f"all {{}}s but two add less than {percent(ACRO['safe_pratio_p'])} of the largest "
    "amount to {}",
    "all-values-are-same": "all {}s have the same value in {}",
}
"""Messages on what each rule finds, given units and sums."""


def _rule(rule: str, columns: Sequence[Mapping[str, Any]], n: int, unit: str) -> dict[str, str]:
    """Return the check of a rule over all columns."""
    found = {each["column"]: each[rule] for each in columns if each[rule]}
    if not found:
        return _check(rule, "pass", FOUND[rule].format(unit, "no sum"))
    worst = max(found, key=lambda name: (found[name], name))
    most = f"; most in {printable(worst)!r}, {found[worst]:,} of {n:,} groups"
    sums = counted(sum(found.values()), "sum")
    return _check(rule, "review", FOUND[rule].format(unit, sums) + most)


def _check(name: str, outcome: str, summary: str) -> dict[str, str]:
    return {"check": name, "outcome": outcome, "summary": summary}


def _of_limits(site: SiteFile) -> dict[str, str]:
    """Return the check of a site that trusts the coordinator with sums of rows."""
    least, unit = site.limits.min_cluster_size, "row" if site.group_column is None else "person"
    summary = f"a sum over fewer than {least} {unit}s does not leave; questions choose the sums"
    return _check("threshold", "review", summary)


def _federation(site: SiteFile) -> dict[str, Any]:
    """Return what has left a site, with its recipients, permits, cohorts and budget."""
    membership = Membership.from_site_file(site)
    folder, log = site.state_folder, site_log(site, membership)
    lines = list(read_log(log.path))
    runs = run_records(answers_of(lines))
    weights = [t["smallest_weight"] for run in runs for t in run["tasks"]]
    content: dict[str, Any] = {
        "released": {
            "runs": len(runs),
            "questions": sum(run["questions"] for run in runs),
            "refused": sum(run["refused"] for run in runs),
            "numbers": sum(task["numbers"] for run in runs for task in run["tasks"]),
            "smallest_weight": min((w for w in weights if w is not None), default=None),
            "versions_of_rows": 1 + sum(line.get("event") == ROWS_CHANGED for line in lines),
        }
    }
    if log.path.exists():
        end, _ = verify(log.path)
        content["log"] = {"lines": end.line, "files": end.part, "head": end.hash}
    if (ledger := site_budget(site, log)) is not None:
        content["budget"] = budget_content(ledger)
    if (folder / IDENTITY).exists():
        content["cohorts"] = sorted(map(list, earlier_cohorts(SiteState(folder / STATE_FILE))))
    if site.permits:
        with log.locked() as head:
            known = site_permits(site, membership).known(head)
        content["permits"] = [{**permit.plain(), **state} for permit, state in known]
    return content


def statement(content: Mapping[str, Any]) -> str:
    """Return one sentence about a site that a person can sign."""
    parts = [_promise(content), *_of_one(content)]
    if "audit" in content:
        read, rows = content["audit"]["worst"], content["audit"]["n_rows"]
        members = content["audit"]["membership"]
        parts.append(
            f"known attacks read {read:,} of {rows:,} rows, and tell members from others with an "
            f"advantage of {members['value']:.2f} ± {members['margin']:.2f}"
            f"{''.join(unpromised(content['audit']))}"
        )
    if "log" in content:
        log = content["log"]
        parts.append(f"the log of {counted(log['lines'], 'line')} is whole, {log['head'][:16]}")
    return f"Site {printable(content['site'])}, {content['time'][:10]}: {'; '.join(parts)}."


def _of_one(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the largest share of one row in a sum, and what follows from it."""
    columns, unit = content.get("columns", ()), content.get("unit")
    most, name = _largest(columns, "largest_share")
    if not most:
        return
    yield f"one {unit} is at most {percent(most)} of a sum ({printable(name)})"
    single = next(each for each in content["checks"] if each["check"] == "single-value")
    follows = (
        "no sum tells such a value alone"
        if single["outcome"] == "pass"
        else ("SUMS TELL SINGLE VALUES")
    )
    yield f"{single['summary']}, so {follows}"


def _promise(content: Mapping[str, Any]) -> str:
    if content["protection"] == "privacy budget":
        return "every answer has noise under a privacy budget"
    if content["protection"] == "limits":
        return str(content["checks"][0]["summary"])
    p, unit = content["groups"]["p"], content["unit"]
    return f"every number that a question reads stands for at least {p} {unit}s"


def evidence_parts(content: Mapping[str, Any], *, most_columns: int = 20) -> Iterator[Table | str]:
    """Yield evidence as tables and sentences, with the statement last.

    ``most_columns``: number of columns on the screen, those with the largest shares.
    """
    name = printable(content["site"])
    if content["checks"]:
        rows = tuple((c["check"], c["outcome"], c["summary"]) for c in content["checks"])
        yield Table(f"Checks of site {name}", ("check", "outcome", "what was found"), rows)
    columns = sorted(content.get("columns", ()), key=lambda c: -(c["largest_share"] or 0.0))
    if columns:
        yield Table(
            "Largest share of one group's sum, and groups found",
            HEADER,
            tuple(map(_column_row, columns[:most_columns])),
        )
    if len(columns) > most_columns:
        yield f"And {counted(len(columns) - most_columns, 'column')} with smaller shares: --json."
    yield from _left(content)
    if "audit" in content:
        yield content["audit"]["summary"]
    yield content["statement"]


SIGNED = "Name, date and signature: ________________________________________"
ATTACKS = ("attack", "read", "promised", "questions", "refused")
HEADER = ("column", "one", "two", "single value", *RULES)


def _column_row(column: Mapping[str, Any]) -> tuple[str, ...]:
    shares = (column["largest_share"], column["two_largest_share"], column["single_share"])
    return (
        printable(column["column"]),
        *("" if share is None else percent(share) for share in shares),
        *(f"{column[rule]:,}" for rule in RULES),
    )


def _left(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on the answers that have left the site."""
    if released := content.get("released"):
        least = released["smallest_weight"]
        over = "" if least is None else f", none over a weight below {number(least)}"
        refused = f"; {released['refused']:,} were refused" if released["refused"] else ""
        yield (
            f"{counted(released['questions'], 'question')} of {counted(released['runs'], 'run')} "
            f"were answered with {counted(released['numbers'], 'number')}{over}{refused}."
        )
        yield f"They were about {counted(released['versions_of_rows'], 'version')} of the rows."
    if "budget" in content:
        yield spent_line(content["budget"])
    for cohort in content.get("cohorts", ()):
        yield f"Secure sums with {printable(', '.join(cohort))}."
    for permit in content.get("permits", ()):
        yield f"Permit {printable(str(permit['id']))}, until {permit['end']}."


def evidence_page(content: Mapping[str, Any]) -> str:
    """Return evidence as an HTML page that needs no network."""
    checks = [
        [parts.strong(f"{each['check']}: {each['outcome']}."), f" {each['summary']}."]
        for each in content["checks"]
    ]
    columns = [_column_row(column) for column in content.get("columns", ())]
    attacks = [
        (
            each["attack"],
            f"{each['score']['read']:,}",
            "nothing" if each["promised"] else "",
            f"{each['asked']:,}",
            f"{each['refused']:,}",
        )
        for each in content.get("audit", {}).get("readings", ())
    ]
    caption = "Largest share of one group's sum, and groups that each rule finds"
    contents = {
        "Statement": parts.paragraphs(content["statement"], SIGNED),
        "Checks": parts.listed_items(checks),
        "Columns": parts.table(caption, HEADER, columns),
        "What has left": parts.paragraphs(*_left(content)),
        "Attacks": parts.table("What attacks read", ATTACKS, attacks),
    }
    keys = {name: name.split()[-1].lower() for name in contents}
    shown = {keys[name]: parts.section(keys[name], name, each) for name, each in contents.items()}
    return page(f"Evidence about site {content['site']}", str(content["time"][:10]), shown)


def write_evidence(out: Path, content: Mapping[str, Any]) -> list[Path]:
    """Write evidence as JSON and, beside it, as a page, both private; return both files.

    Parameters
    ----------
    out : Path
        The JSON file, whose name ends with .json; the page has the same name with .html.
    content : mapping
        The result of `evidence`.
    """
    files = {out: json_text(content), out.with_suffix(".html"): evidence_page(content)}
    for path, text in files.items():
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return list(files)
