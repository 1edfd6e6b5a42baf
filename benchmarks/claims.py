"""Which measured numbers of the pages rest on code that has changed since, and whether they hold.

    .venv/bin/python benchmarks/claims.py [--only WORD] [--no-runs]

`claims.toml`, beside this file, has an entry for each measurement that a page speaks of: where its
numbers stand, the script that makes them, the commit that it ran at, and the modules of fedcluster
that the numbers rest on. A claim is *old* if the code of these modules has changed since: comments
and docstrings are no code. Claims with ``checks`` are measured again, most in a smaller case, and
compared with what the page says: such a claim is not old, it holds or it does not. The exit status
is 1 if one does not hold.

After a new measurement, write the numbers on the page, and its commit and the digest of the page's
numbers into the entry; `tests/repository/test_claims.py` says what the digest is.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = "src"
NUMBER = re.compile(r"(?<![\w.])(?:\d[\d,]*)?\.?\d+(?![\w])|\d+(?=[a-z%])")
RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
LOWERED = str.maketrans(RAISED, "-0123456789")


@dataclass(frozen=True)
class Place:
    """Where a number stands: a section with all of its numbers, or words of a page.

    Parameters
    ----------
    page : str
        The page, from the root of the repository.
    section : str
        A heading of the page, or nothing.
    numbers : str
        The `digest` of the section.
    says : str
        Words of the page, between which white space does not matter, or nothing.
    """

    page: str
    section: str = ""
    numbers: str = ""
    says: str = ""

    @property
    def text(self) -> str:
        """Return the text of the section, or the words."""
        return sections(self.page)[self.section] if self.section else self.says


@dataclass(frozen=True)
class Check:
    """A run that takes seconds, and what its output must say.

    Parameters
    ----------
    run : str
        A script and its arguments.
    find : str
        A pattern with one group, a number; every match in the output is compared.
    stands : str
        The number on the page.
    at_most, at_least : float, optional
        Bounds of the number found, in place of equality.
    within : float
        How far the number found may be from that on the page, as a share of it.
    """

    run: str
    find: str
    stands: str
    at_most: float | None = None
    at_least: float | None = None
    within: float = 0.0

    def holds(self, found: float) -> bool:
        """Return whether a number that was found agrees with the page."""
        if self.at_most is not None or self.at_least is not None:
            least = -float("inf") if self.at_least is None else self.at_least
            return least <= found <= (float("inf") if self.at_most is None else self.at_most)
        stands = value(self.stands)
        return abs(found - stands) <= self.within * abs(stands)


@dataclass(frozen=True)
class Claim:
    """One measurement: its script, its age, and where its numbers stand.

    Parameters
    ----------
    name : str
        What it is called.
    measured : str
        The commit that it ran at.
    rests_on : tuple of str
        Patterns of files below ``src``.
    places : tuple of Place
    checks : tuple of Check
    script : str
        The script, with its arguments, that makes the numbers.
    once : str
        Without one: why nothing can make them again.
    note : str
        What a reader of this file must know.
    """

    name: str
    measured: str
    rests_on: tuple[str, ...]
    places: tuple[Place, ...]
    checks: tuple[Check, ...] = ()
    script: str = ""
    once: str = ""
    note: str = ""


@dataclass(frozen=True)
class Harmless:
    """Commit that changed code, and no number: of some claims or, without names, of any."""

    commit: str
    why: str
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Book:
    """All claims, what changed none of their numbers, and the pages of measurements."""

    claims: tuple[Claim, ...]
    harmless: tuple[Harmless, ...]
    pages: tuple[str, ...]
    unmeasured: Mapping[tuple[str, str], str]

    def excuses(self, commit: str, claim: str) -> bool:
        """Return whether a commit is among those that change no number of a claim."""
        return any(
            commit.startswith(each.commit) and (not each.claims or claim in each.claims)
            for each in self.harmless
        )


def book() -> Book:
    """Return what the file of claims says."""
    told = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return Book(
        tuple(_claim(each, told["modules"]) for each in told["claim"]),
        tuple(
            Harmless(each["commit"], each["why"], tuple(each.get("claims", ())))
            for each in told.get("harmless", [])
        ),
        tuple(told["pages"]),
        {(each["page"], each["section"]): each["why"] for each in told.get("unmeasured", [])},
    )


def _claim(told: Mapping[str, Any], modules: Mapping[str, list[str]]) -> Claim:
    made: dict[str, Any] = {
        "rests_on": tuple(sorted(set(_patterns(told["rests_on"], modules)))),
        "places": tuple(Place(**each) for each in told["places"]),
        "checks": tuple(Check(**each) for each in told.get("checks", [])),
    }
    return Claim(**{**told, **made})


def _patterns(rests_on: list[str], modules: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the patterns of a list; those of a list that it names stand in its place."""
    for each in rests_on:
        if each.startswith("@"):
            yield from _patterns(modules[each[1:]], modules)
        else:
            yield each


def script_of(run: str) -> str:
    """Return the file that a run begins with: a script, a test, or a module by its name."""
    words = shlex.split(run.partition(";")[0])
    if words[:1] != ["-m"]:
        return words[0] if words else ""
    if words[1] == "pytest":
        return next(word for word in words if word.startswith("tests/"))
    path = words[1].replace(".", "/")
    path = f"src/{path}" if path.startswith("fedcluster") else path
    return path if (ROOT / path).is_dir() else f"{path}.py"


# What a page says


@cache
def sections(page: str) -> Mapping[str, str]:
    """Return the text below each heading of a page, up to the next one; no code is a heading."""
    parts: dict[str, str] = {}
    heading, fenced = "", False
    for line in (ROOT / page).read_text("utf-8").splitlines(keepends=True):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (found := re.match(r"#+ (.+)", line)):
            heading = found[1].strip()
            if heading in parts:
                raise ValueError(f"{page} has two headings {heading!r}: claims could mean either")
        else:
            parts[heading] = parts.get(heading, "") + line
    return parts


def value(text: str) -> float:
    """Return a number that is written with commas between thousands."""
    return float(text.replace(",", ""))


def numbers(text: str) -> list[str]:
    """Return the numbers of a text, exponents too, without those of addresses."""
    text = re.sub(f"([{RAISED}]+)", lambda found: "^" + found[1].translate(LOWERED), text)
    return NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", text))


def measured(text: str) -> tuple[str, str]:
    """Return a section's tables and blocks of fixed columns, and its other text."""
    exact: list[str] = []
    prose: list[str] = []
    fenced = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        (exact if fenced or fence or line.lstrip().startswith("|") else prose).append(line)
    return "\n".join(exact), "\n".join(prose)


def digest(text: str) -> str:
    """Return what tells the numbers of a section from others; in prose, their order is free."""
    exact, prose = measured(text)
    told = [*numbers(exact), "|", *sorted(numbers(prose))]
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:10]


# What has changed


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@cache
def _code(blob: str) -> str:
    """Return a file's code without comments and docstrings; a blob of zeros has none."""
    return code(_git("cat-file", "blob", blob)) if blob.strip("0") else ""


def code(source: str) -> str:
    """Return the syntax tree of Python, without docstrings; other text as it is."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a text alone, such as a docstring: it does nothing."""
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


@cache
def changes(since: str, rests_on: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commits since one that changed the code of modules, the newest first."""
    if not rests_on:
        return ()
    paths = [f":(glob){PACKAGE}/{pattern}" for pattern in rests_on]
    log = _git("log", "-M", "--raw", "--no-abbrev", "--format=%H", f"{since}..HEAD", "--", *paths)
    found: dict[str, None] = {}
    commit = ""
    for line in filter(None, log.splitlines()):
        if not line.startswith(":"):
            commit = line
        elif line.split("\t")[1].endswith(".py"):
            before, after = line.split()[2:4]
            if _code(before) != _code(after):
                found[commit] = None
    return tuple(found)


# What is measured again


@cache
def output(run: str) -> tuple[str, float]:
    """Return what a script prints, and the processor time that it took."""
    before, environment = os.times(), {**os.environ, "PYTHONPATH": "src:."}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", *shlex.split(run)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    after = os.times()
    seconds = after.children_user + after.children_system
    seconds -= before.children_user + before.children_system
    if ran.returncode:
        raise RuntimeError(f"{run} ended with {ran.stderr.strip().splitlines()[-1:]}")
    return ran.stdout, seconds


def found_by(check: Check, text: str) -> list[float]:
    """Return the numbers that a check looks for in the output of its script."""
    return [value(each) for each in re.findall(check.find, text, re.MULTILINE)]


def verdicts(claim: Claim) -> Iterator[tuple[bool, str]]:
    """Run the checks of a claim, and yield for each whether it holds, and a line."""
    for check in claim.checks:
        text, seconds = output(check.run)
        found = found_by(check, text)
        holds = bool(found) and all(map(check.holds, found))
        told = ", ".join(f"{each:g}" for each in found) or "nothing"
        yield holds, f"{check.stands} on the page, {told} now ({check.run}; {seconds:.0f} s)"


def main() -> int:
    """Print a line for each claim that is old, or that was measured again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="claims whose name contains this")
    parser.add_argument("--no-runs", action="store_true", help="say which are old, run nothing")
    given = parser.parse_args()
    told, wrong, old = book(), 0, 0
    begin = time.perf_counter()
    claims = [claim for claim in told.claims if given.only in claim.name]
    for claim in claims:
        if claim.checks and not given.no_runs:
            for holds, line in verdicts(claim):
                wrong += not holds
                print(f"{'holds' if holds else 'WRONG'}  {claim.name}: {line}", flush=True)
        elif not claim.checks and not claim.once:
            every = changes(claim.measured, claim.rests_on)
            since = [commit for commit in every if not told.excuses(commit, claim.name)]
            old += bool(since)
            if since:
                what = f"{claim.script}, at {claim.measured}; commits since: {len(since)}"
                print(f"old    {claim.name}: {what}, the last {since[0][:7]}", flush=True)
    print(f"{len(claims)} claims: {old} old, {wrong} wrong; {time.perf_counter() - begin:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
