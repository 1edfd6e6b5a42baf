"""Bounds on what a site is asked in one message, one run and one day, and the count of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any

from fedcluster.core import RowTransform
from fedcluster.io._site_state import SiteState, get, last, put

LONGEST_RUN = 64
"""Characters of the name of a run."""

KEPT_RUNS = 1000
"""Runs of which it is known what they asked."""


class PolicyError(ValueError):
    """Refusal of a question: the rule that it breaks, and nothing else."""

    def __str__(self) -> str:
        return f"by the policy of the site: {super().__str__()}"


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """The table ``[policy]`` of a site file: bounds, each narrower than what steps declare.

    Parameters
    ----------
    max_clusters : int
        The largest number of clusters; starts may have twice as many centres.
    max_tasks : int
        Tasks in a message.
    max_numbers : int
        Numbers in a message, and in the answer to it.
    max_rounds_per_run, max_rounds_per_day, max_runs_per_day : int
        Questions, and runs that are begun; a day is one of UTC.
    max_preparations : int
        Ways to prepare the rows in one run, of which one may have principal components.
    steps : tuple of str
        The steps that may be asked; without any, all that the site knows.
    denied : tuple of str
        Those of them that may not.
    """

    max_clusters: int = 500
    max_tasks: int = 4000
    max_numbers: int = 12_500_000
    max_rounds_per_run: int = 2000
    max_rounds_per_day: int = 10_000
    max_runs_per_day: int = 200
    max_preparations: int = 7
    steps: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


def _today() -> date:
    return datetime.now(UTC).date()


class Ledger:
    """Count of what a coordinator asks, which outlives the site's program.

    Parameters
    ----------
    state : SiteState, optional
        What holds it; without one, the count ends with the program.
    today : callable
        Returns the day. One before the last that was counted is counted as that.
    """

    def __init__(self, state: SiteState | None = None, today: Callable[[], date] = _today) -> None:
        self._state, self._today = state or SiteState(), today

    def admit(
        self,
        header: Mapping[str, Any],
        preparations: Sequence[RowTransform],
        limits: PolicyLimits,
    ) -> None:
        """Count one question of a run, before it is answered.

        Raises
        ------
        PolicyError
            If it is one too many, or comes again; it is not counted then.
        InputError
            If the state of the site cannot be used.
        """
        run, exchange = header.get("run"), header.get("exchange")
        if not isinstance(run, str) or not run.isprintable() or not 0 < len(run) <= LONGEST_RUN:
            raise PolicyError(f"run must be a name of at most {LONGEST_RUN} characters")
        with self._state.transaction() as file:
            counted, (rounds, begun) = last(file, "days") or ("", (0, 0))
            day = max(counted, self._today().isoformat())
            if day != counted:
                rounds = begun = 0
            before = get(file, "asked", run)
            after = _admitted(before, exchange, preparations, limits)
            begun += before is None
            if rounds >= limits.max_rounds_per_day:
                raise PolicyError(f"at most {limits.max_rounds_per_day:,} rounds a day")
            if begun > limits.max_runs_per_day:
                raise PolicyError(f"at most {limits.max_runs_per_day:,} runs a day")
            put(file, "asked", run, after, KEPT_RUNS)
            put(file, "days", day, (rounds + 1, begun), 1)


def _admitted(
    before: Mapping[str, Any] | None,
    exchange: Any,
    preparations: Sequence[RowTransform],
    limits: PolicyLimits,
) -> dict[str, Any]:
    """Return what a run has asked after one more question."""
    known = before or {"rounds": 0, "last": -1, "preparations": [], "principal": []}
    if type(exchange) is not int or exchange <= known["last"]:
        raise PolicyError("exchange must be a whole number that rises within a run")
    if known["rounds"] >= limits.max_rounds_per_run:
        raise PolicyError(f"at most {limits.max_rounds_per_run:,} rounds in a run")
    plain = [how.plain() for how in preparations]
    every = {*known["preparations"], *map(_digest, plain)}
    principal = {_digest(each["principal"]) for each in plain if each.get("principal") is not None}
    principal |= set(known["principal"])
    if len(every) > limits.max_preparations:
        raise PolicyError(f"at most {limits.max_preparations} preparations in a run")
    if len(principal) > 1:
        raise PolicyError("at most one preparation with principal components in a run")
    return {
        "rounds": known["rounds"] + 1,
        "last": exchange,
        "preparations": sorted(every),
        "principal": sorted(principal),
    }


def _digest(plain: Any) -> str:
    return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
