"""Kills without asking, of any program of a federation at any moment, however it was started."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

from federations import RunningFederation

from fedcluster.coordinator.folder import Federation
from fedcluster.coordinator.runs import GOING, runs
from fedcluster.site.owned_files import ORPHAN

WAYS = {
    "a shell": (),
    "a script": ("sh", "-c", "trap '' INT QUIT; exec \"$@\"", "sh"),
    "nohup": ("nohup",),
}
"""Ways of starting a program; in the background of a script, it ignores interrupts."""

PROGRAMS = {"coordinator": "", "superlink": "_launcher.py", "run": "_app"}
AT_SITES = {"site": "", "supernode": "_launcher.py", "worker": "serve()"}
"""Programs, by a word in the arguments of those that others have started."""


class Kill:
    """A kill that is drawn from a seed: what, after which exchange and how much later."""

    def __init__(self, seed: int, sites: list[str], rounds: int) -> None:
        draw = random.Random(seed)
        self.what = draw.choice([*PROGRAMS, *AT_SITES])
        self.site = draw.choice(sites)
        self.exchange, self.later = draw.randrange(rounds), draw.uniform(0, 0.5)
        self.way = draw.choice(list(WAYS))

    def __str__(self) -> str:
        where = f" of {self.site}" if self.what in AT_SITES else ""
        when = f"{self.later:.2f} s after exchange {self.exchange}"
        return f"{self.what}{where}, {when}, started again by {self.way}"

    def carry_out(self, running: RunningFederation) -> str:
        """Kill a program and start again, by its command alone, what has ended; say what is wrong.

        Something of it may be left for a while, but not for long.
        """
        running.wait_for_exchange(self.exchange)
        time.sleep(self.later)
        at_site = self.what in AT_SITES
        command = running.sites[self.site] if at_site else running.coordinator
        word = {**PROGRAMS, **AT_SITES}[self.what]
        victims = running.children(command, word) if word else [command.process.pid]
        for victim in victims:  # none where the run has not begun, or is over
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        if self.what in {"coordinator", "superlink", "site"}:
            command.process.wait(60)
        running.way = WAYS[self.way]
        if self.what in {"coordinator", "superlink"}:
            running.start()
        elif self.what == "site":
            running.join(self.site)
        time.sleep(max(0.0, killed + ORPHAN - time.monotonic()))
        orphans = self._orphans(running)
        return f"orphans: {orphans}" if orphans else ""

    def _orphans(self, running: RunningFederation) -> list[str]:
        """What runs without a command that has started it."""
        family = {pid for command in running.commands for pid in running.programs(command)}
        found = []
        for pid in set(running.pids()) - family:
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[-200:])
        return found


def resumed(running: RunningFederation, out: Path) -> str:
    """Go on as a run that was broken off says, until it is done; say what is wrong."""
    said = running.asked.said() if running.asked.wait() else ""
    for _ in range(3):
        if not said:
            break
        if "fedcluster federation start" in said:  # it had not been asked for
            running.asked = running.command(*running.asked.arguments)
            said = running.asked.said() if running.asked.wait() else ""
            continue
        advice, _, name = said.strip().rpartition("resume ")
        if not advice.endswith(f"federation run {running.folder} "):
            return f"no advice: {said}"
        again = running.command("federation", "run", running.folder, "resume", name)
        said = again.said() if again.wait() else ""
    left = [run.name for run in runs(Federation.load(running.folder)) if run.state in GOING]
    return said or (f"ghosts: {left}" if left else "") or ("" if out.is_dir() else "no result")
