"""Audits as a table and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

from fedcluster._attacks._audit import Audit, Reading
from fedcluster._attacks._membership import Advantage
from fedcluster._report._tables import Table
from fedcluster._version import VERSION
from fedcluster.errors import listed


def audit_table(audits: Sequence[Audit]) -> Table:
    """Return one table: rows read by each attack under each protection, membership, and J."""
    by_attack = zip(*(each.readings for each in audits), strict=True)
    rows = [(readings[0].attack, *map(_cell, readings)) for readings in by_attack]
    rows += [
        ("advantage, members", *(_shown(each.membership) for each in audits)),
        ("advantage, canaries", *(_shown(each.canaries) for each in audits)),
        ("J / J of an exact fit", *(f"{a.quality:.4f}" for a in audits)),
    ]
    return Table(
        f"Rows that each attack reads, of {audits[0].n_rows:,}",
        ("attack", *(each.protection for each in audits)),
        tuple(rows),
    )


def _shown(advantage: Advantage) -> str:
    return f"{advantage.value:.2f}±{advantage.margin:.2f}".replace("±0", "±")


def _cell(reading: Reading) -> str:
    """Return rows read exactly, and with a + those that are right when rounded."""
    score = reading.score
    if reading.asked and reading.refused == reading.asked:
        return "refused"
    more = f" (+{score.near - score.read:,})" if score.near > score.read else ""
    return f"{score.read:,}{more}"


def sentences(audits: Sequence[Audit]) -> Iterator[str]:
    """Yield what the numbers mean."""
    for each in audits:
        alike = max(reading.score.alike for reading in each.readings)
        said = f"{each.protection}: at most {each.worst:,} of {each.n_rows:,} rows by one attack"
        shared = f"; {alike:,} more have values that as many share as are in a group"
        yield f"{said}{shared if alike else ''}."
    yield signed(audits[0], datetime.now(UTC).date())


def signed(audit: Audit, day: date) -> str:
    """Return what an audit of a site as it is has found, in a sentence that a person can sign."""
    protected = [each for each in audit.readings if each.protected]
    attacks = f"{len(protected)} attack{'s' * (len(protected) != 1)}"
    asked = sum(each.asked for each in audit.readings)
    found = "none of them read a row"
    if reading := [each.attack for each in protected if each.score.read]:
        found = f"{listed(reading)} read up to {audit.worst:,} rows"
    return (
        f"On {day}, fedcluster {VERSION} played {attacks} against {audit.n_rows:,} "
        f"rows of this site with its protection ({audit.protection}), in {asked:,} questions: "
        f"{found}."
    )


def content(audits: Sequence[Audit]) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {"audits": [{**asdict(each), "worst": each.worst} for each in audits]}
