"""Words for the privacy budget of a site: what each run has cost, and what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import fsum
from typing import Any

from fedcluster._html import Table
from fedcluster._report._tables import number
from fedcluster._texts import printable
from fedcluster.privacy._budget import BudgetLedger, Charge


def budget_content(ledger: BudgetLedger) -> dict[str, Any]:
    """Return what a ledger says, as JSON can hold it.

    Epsilon of runs does not add up to that of all; their rho does.
    """
    runs: dict[str, list[Charge]] = {}
    for charge in ledger.charges:
        runs.setdefault(charge.run, []).append(charge)
    budget, rho = ledger.budget, fsum(charge.rho for charge in ledger.charges)
    return {
        "ledger": str(ledger.path),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "group_size": budget.group_size,
        "rho": budget.rho,
        "spent": {"epsilon": budget.spent(rho), "rho": rho},
        "left": {"rho": max(budget.rho - rho, 0.0)},
        "runs": [_run(name, charges, ledger) for name, charges in runs.items()],
    }


def _run(name: str, charges: list[Charge], ledger: BudgetLedger) -> dict[str, Any]:
    rho = fsum(charge.rho for charge in charges)
    return {
        "run": name,
        "from": charges[0].time,
        "questions": len(charges),
        "answers": sum(charge.answers for charge in charges),
        "epsilon": ledger.budget.spent(rho),
        "rho": rho,
    }


def budget_parts(content: Mapping[str, Any]) -> Iterator[Table | str]:
    """Yield the budget of a site as a table of its runs, and sentences."""
    spent, delta = content["spent"], content["delta"]
    if content["runs"]:
        yield Table(
            f"Privacy budget, epsilon at delta {delta:g}",
            ("run", "from", "answers", "epsilon", "rho"),
            tuple(
                (
                    printable(run["run"]),
                    str(run["from"])[:16].replace("T", " "),
                    f"{run['answers']:,}",
                    number(run["epsilon"]),
                    number(run["rho"]),
                )
                for run in content["runs"]
            ),
            ("all", "", "", number(spent["epsilon"]), number(spent["rho"])),
        )
    else:
        yield "No question was answered under this budget."
    yield spent_line(content)


def spent_line(content: Mapping[str, Any]) -> str:
    """Return what is spent of a budget, and what is left, in a sentence."""
    spent, delta, whose = content["spent"], content["delta"], "each record"
    if (size := content["group_size"]) > 1:
        whose = f"each person with up to {size} records"
    return (
        f"Spent: epsilon {number(spent['epsilon'])} of {content['epsilon']:g} at delta {delta:g}, "
        f"for {whose}. Left: {number(100 * content['left']['rho'] / content['rho'])} % of rho."
    )
