"""What estimators print while they fit, where ``verbose`` asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

from fedcluster.errors import listed
from fedcluster.rounds import CommunicationRound


def say(line: str) -> None:
    """Print a line, as scikit-learn's estimators do."""
    print(line)  # noqa: T201


def rounds_said() -> Callable[[CommunicationRound], None]:
    """Return what says a line for each round with the sites as it ends."""
    numbers = count(1)

    def told(done: CommunicationRound) -> None:
        tasks = Counter(done.steps)
        asked = ", ".join(f"{n} {step}" if n > 1 else step for step, n in tasks.items())
        sites = f"{len(done.answered)} sites" if len(done.answered) != 1 else "1 site"
        lacking = f", not {listed(list(done.missing))}" if done.missing else ""
        sent = sum(done.values_sent.values())
        say(f"round {next(numbers)}: {asked}; {sites} answered{lacking}, {sent:,} numbers")

    return told
