"""Kills without asking, of any program of a federation at any moment, however it was started."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from federations import RunningFederation

from fedcluster_app.coordinator.folder import Federation
from fedcluster_app.coordinator.runs import GOING, runs
from fedcluster_app.trust.owned_files import ORPHAN

WAYS = {
    "a shell": (),
    "a script": ("sh", "-c", "trap '' INT QUIT; exec \"$@\"", "sh"),
    "nohup": ("nohup",),
}
"""Ways of starting a program; in the background of a script, it ignores interrupts."""


@dataclass(frozen=True)
class Programs:
    """Programs of a transport, by a word in the arguments of those that others have started."""

    of_coordinator: Mapping[str, str]
    of_site: Mapping[str, str]
    ending: frozenset[str]
    """Those with which the command ends that started them, so that it is to be given again."""


FLOWER = Programs(
    {"coordinator": "", "superlink": "_launcher.py", "run": "flower._app", "command": ""},
    {"site": "", "worker": "serve()"},
    frozenset({"coordinator", "superlink", "site"}),
)
FLARE = Programs(
    {"coordinator": "", "server": "server_train", "run": "runner_process", "command": ""},
    {"site": "", "worker": "worker_process"},
    frozenset({"coordinator", "server", "site"}),
)


class Kill:
    """A kill that is drawn from a seed: what, after which exchange and how much later."""

    def __init__(
        self, seed: int, sites: list[str], rounds: int, programs: Programs = FLOWER
    ) -> None:
        draw, self.programs = random.Random(seed), programs
        self.what = draw.choice([*programs.of_coordinator, *programs.of_site])
        self.site = draw.choice(sites)
        self.exchange, self.later = draw.randrange(rounds), draw.uniform(0, 0.5)
        self.way = draw.choice(list(WAYS))

    def __str__(self) -> str:
        where = f" of {self.site}" if self.at_site else ""
        when = f"{self.later:.2f} s after exchange {self.exchange}"
        return f"{self.what}{where}, {when}, started again by {self.way}"

    @property
    def at_site(self) -> bool:
        """Whether the program belongs to a site."""
        return self.what in self.programs.of_site

    def carry_out(self, running: RunningFederation) -> str:
        """Kill a program and start again, by its command alone, what has ended; say what is wrong.

        Something of it may be left for a while, but not for long.
        """
        running.wait_for_exchange(self.exchange)
        time.sleep(self.later)
        command = running.sites[self.site] if self.at_site else running.coordinator
        if self.what == "command":  # of who asked for the run, which goes on
            command = running.asked
        word = {**self.programs.of_coordinator, **self.programs.of_site}[self.what]
        victims = running.children(command, word) if word else [command.process.pid]
        for victim in victims:  # none where the run has not begun, or is over
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        running.way = WAYS[self.way]
        if self.what in self.programs.ending:
            command.process.wait(60)
            if self.at_site:
                running.join(self.site)
            else:
                running.start()
        time.sleep(max(0.0, killed + ORPHAN - time.monotonic()))
        if orphans := self._orphans(running):  # of a run that has just ended: for as long again
            time.sleep(ORPHAN)
            orphans = {pid: line for pid, line in self._orphans(running).items() if pid in orphans}
        return f"orphans: {[*orphans.values()]}" if orphans else ""

    def _orphans(self, running: RunningFederation) -> dict[int, str]:
        """What runs without a command that has started it, by process."""
        now, found = set(running.pids()), dict[int, str]()  # what is started meanwhile is none
        family = {pid for command in running.commands for pid in running.programs(command)}
        for pid in now - family:
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
                if line:
                    found[pid] = line[-200:]
        return found


def resumed(running: RunningFederation, out: Path) -> str:
    """Go on as a run that was broken off says, until it is done; say what is wrong.

    A command that was killed itself says nothing; then the list of runs tells its name.
    """
    said = running.asked.said() if running.asked.wait() else ""
    if running.asked.process.returncode == -signal.SIGKILL:
        new = sorted(path.name for path in running.begun())  # none where it was killed too early
        how = f"run {running.folder} resume {new[-1]}" if new else "start"
        said = f"fedcluster federation {how}"
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
        again = running.command("federation", "run", running.folder, "resume", name, "--out", out)
        said = again.said() if again.wait() else ""
    left = [run.name for run in runs(Federation.load(running.folder)) if run.state in GOING]
    return said or (f"ghosts: {left}" if left else "") or ("" if out.is_dir() else "no result")
