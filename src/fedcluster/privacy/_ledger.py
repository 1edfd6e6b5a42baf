"""Bounds on what a site is asked in one message, one run and one day, and the count of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedcluster.core import RowTransform
from fedcluster.errors import InputError
from fedcluster.io._outputs import write_json

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
    path : Path, optional
        The file that holds it; without one, the count ends with the program.
    today : callable
        Returns the day. One before the last that was counted is counted as that.

    Raises
    ------
    InputError
        If the file cannot be read.
    """

    def __init__(self, path: Path | None = None, today: Callable[[], date] = _today) -> None:
        self._path, self._today = path, today
        self._counted: dict[str, Any] = {"day": "", "rounds": 0, "begun": 0, "runs": {}}
        if path is not None and path.exists():
            try:
                self._counted |= json.loads(path.read_text("utf-8"))
            except (OSError, TypeError, ValueError) as error:
                raise InputError(f"{path} cannot be read: {error}; it counts rounds") from error

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
        """
        run, exchange = header.get("run"), header.get("exchange")
        if not isinstance(run, str) or not run.isprintable() or not 0 < len(run) <= LONGEST_RUN:
            raise PolicyError(f"run must be a name of at most {LONGEST_RUN} characters")
        day = max(self._counted["day"], self._today().isoformat())
        same = day == self._counted["day"]
        rounds, begun = (self._counted[key] if same else 0 for key in ("rounds", "begun"))
        runs: dict[str, Any] = dict(self._counted["runs"])
        before = runs.pop(run, None)
        after = _admitted(before, exchange, preparations, limits)
        begun += before is None
        if rounds >= limits.max_rounds_per_day:
            raise PolicyError(f"at most {limits.max_rounds_per_day:,} rounds a day")
        if begun > limits.max_runs_per_day:
            raise PolicyError(f"at most {limits.max_runs_per_day:,} runs a day")
        runs = dict([*runs.items(), (run, after)][-KEPT_RUNS:])
        self._counted = {"day": day, "rounds": rounds + 1, "begun": begun, "runs": runs}
        if self._path is not None:
            write_json(self._path, self._counted)


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
