"""Audits as a table and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from fedcluster._attacks._audit import Audit, Reading
from fedcluster._attacks._membership import Advantage
from fedcluster._report._tables import Table


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


def content(audits: Sequence[Audit]) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {"audits": [{**asdict(each), "worst": each.worst} for each in audits]}
