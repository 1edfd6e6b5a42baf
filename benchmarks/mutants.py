"""Change the code a little, at random places, and see whether the tests notice: ``make mutants``.

Each mutant differs from the code in one place: an operator, a bound of a comparison, a term, a
sign, a constant, a guard. It lives in a copy of the tree; the working tree is never touched. A
mutant is *killed* if a test of its file fails, or takes too long, and *survives* otherwise. A
survivor asks for a test, unless it is equivalent: no input lets it give another answer (a size
of a block, a shortcut). That is for a person to say; survivors are listed at the end.

Mutants of kernels are compiled anew, which takes up to a minute each.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = "src"

ELSEWHERE = {
    "fedcluster/algorithms": "rounds engines starts recipes mixtures budget decimals",
    "fedcluster/core": "rounds groups laws lying_sites policy outsiders planned_steps",
    "fedcluster/engines": "grouped_limits recorded disclosure noise protection rounds stability "
    "lying_sites budget group_sums participation agreement replies wire laws",
    "fedcluster/errors": "import",
    "fedcluster/estimators": "new_rows",
    "fedcluster/extend": "extending plugins",
    "fedcluster/frames": "files sources as_written decimals",
    "fedcluster/jobs": "evaluate objectives trimming participation estimators lying_sites",
    "fedcluster/kernels": "small_sites fedavg",
    "fedcluster/lazy": "import",
    "fedcluster/metrics": "laws profiles stability incomplete leaves",
    "fedcluster/mixtures": "likelihood",
    "fedcluster/model": "saved new_rows joining estimators",
    "fedcluster/options": "refusals extending pairs project",
    "fedcluster/preprocessing": "replies_prepared laws sample_files trap_files protection",
    "fedcluster/privacy": "rounds budget policy policy_jobs shared_noise protection_site",
    "fedcluster/recipes": "metrics components mixtures gaussian_mixture trimming stability "
    "profiles participation private_clustering private_fits lying_sites evaluate pairs",
    "fedcluster/rounds": "recipes participation",
    "fedcluster/selection": "leaves likelihood mixtures",
    "fedcluster/testing": "planted_mistakes extending",
    "fedcluster/texts": "report records",
    "fedcluster_app/__main__": "cli",
    "fedcluster_app/audit": "group_rules",
    "fedcluster_app/cli": "dask lifecycle service flare doors sources grouped_limits site",
    "fedcluster_app/datasets": "datasets sample_files",
    "fedcluster_app/extend": "extending plugins",
    "fedcluster_app/records": "records files",
    "fedcluster_app/report": "profiles meaning objectives cli",
    "fedcluster_app/site": "sources health",
    "fedcluster_app/transports": "lifecycle",
    "fedcluster_app/trust": "auditor site federation_jobs lifecycle budget secure_cohorts versions",
    "fedcluster_app/wire": "auditor budget lifecycle health watch extending lying_sites",
}
"""The tests of a room of the package that stand in the folder of another, as `tests/` has it."""
EVERYWHERE = "defaults"
"""The tests of all files, after the others."""

SWAPS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Pow: ("**", "*"), ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
}  # fmt: skip
BOUNDS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
OPPOSITE = {
    ast.Lt: ("<", ">="), ast.LtE: ("<=", ">"), ast.Gt: (">", "<="), ast.GtE: (">=", "<"),
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax",
    "argmax": "argmin", "any": "all", "all": "any",
}  # fmt: skip
SIZES = {
    "ADD_LANES", "BLOCK", "BLOCK_ROWS", "BUDGET", "CACHE_BYTES", "CACHE_LINE",
    "CACHE_LINE_NUMBERS", "CHUNK", "CHUNK_WORK", "DEPTH", "DEPTHS", "FAR", "FEWEST_BLOCKS",
    "FEWEST_CHUNK_ROWS", "LONGEST_WAIT", "MOST_CHUNKS", "MOST_CHUNK_ROWS", "MOST_RUNS", "PADDING",
    "PART_BYTES", "PRODUCT_COLUMNS", "PRODUCT_ROWS", "PRODUCT_VECTORS", "RESTART_WORK",
    "ROWS_PER_CENTER", "TILE_VECTORS", "WIDE", "WIDE_BLOCK", "WORTH_A_CALL", "WORTH_A_THREAD",
    "WORTH_BOUNDS", "NARROW_BLOCK",
}  # fmt: skip
"""Constants that say how work is divided or tried: another value is as right."""
TERMS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Mutation:
    """Other text in one place of a file.

    Parameters
    ----------
    kind : str
        What is changed: "operator", "bound", "term", "sign", "constant", "guard", "name".
    line : int
        Where, from 1.
    start, end : int
        The bytes of the source that give way.
    text : bytes
        What comes in their place.
    """

    kind: str
    line: int
    start: int
    end: int
    text: bytes

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.text + source[self.end :]


def mutations(source: bytes) -> list[list[Mutation]]:
    """List the mutations of a module, one list for each place that has any.

    Examples
    --------
    >>> [[closer, opposite]] = mutations(b"ready = a < b")
    >>> closer.apply(b"ready = a < b"), opposite.apply(b"ready = a < b")
    (b'ready = a <= b', b'ready = a >= b')
    """
    reader = _Reader(source)
    found = [list(reader.changes(node)) for node in _places(ast.parse(source))]
    return [changes for changes in found if changes]


def _places(node: ast.AST) -> Iterator[ast.AST]:
    """Walk through what runs and matters: no annotations, decorators, texts, sizes."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        children = value if isinstance(value, list) else [value]
        if isinstance(node, ast.arguments) and name in ("defaults", "kw_defaults"):
            own = node.kwonlyargs if name == "kw_defaults" else (node.posonlyargs + node.args)
            last = own[len(own) - len(children) :]
            pairs = zip(last, children, strict=True)
            children = [child for arg, child in pairs if arg.arg.upper() not in SIZES]
        for child in children:
            if isinstance(child, ast.AST) and not _says_nothing(child):
                yield child
                yield from _places(child)


def _says_nothing(node: ast.AST) -> bool:
    """Return whether what is in here is a text of an error, a size, or a check of our own."""
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "in_parts"
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {n.id.upper() for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        return bool(names) and names <= SIZES
    return isinstance(node, ast.Raise | ast.JoinedStr)


class _Reader:
    """What can be changed at each node of one source."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def changes(self, node: ast.AST) -> Iterator[Mutation]:
        """Yield the mutations of a node itself, not of what is in it."""
        if isinstance(node, ast.BinOp):
            yield from self._between(node.left, node.right, "operator", SWAPS, node.op)
            if isinstance(node.op, TERMS):
                yield self._instead("term", node, node.left)
                yield self._instead("term", node, node.right)
        elif isinstance(node, ast.AugAssign):
            yield from self._between(node.target, node.value, "operator", SWAPS, node.op)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
                yield from self._between(left, right, "bound", BOUNDS, op)
                yield from self._between(left, right, "bound", OPPOSITE, op)
        elif isinstance(node, ast.BoolOp):
            pair = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from self._token(left, right, "operator", *pair)
        elif isinstance(node, ast.UnaryOp):
            yield self._instead("sign", node, node.operand)
        elif isinstance(node, ast.Constant):
            yield from self._constants(node)
        elif isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], LEAVES):
            yield self._change("guard", node.test, b"False")
        elif isinstance(node, ast.Call):
            yield from self._name(node.func)

    def _constants(self, node: ast.Constant) -> Iterator[Mutation]:
        value = node.value
        if isinstance(value, bool):
            yield self._change("constant", node, str(not value).encode())
        elif isinstance(value, int):
            others = {value + 1, max(value - 1, 0), 2 * value} - {value}
            yield from (self._change("constant", node, b"%d" % n) for n in sorted(others))
        elif isinstance(value, float):
            yield self._change("constant", node, repr(2 * value if value else 1.0).encode())

    def _name(self, function: ast.expr) -> Iterator[Mutation]:
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name in NAMES:
            _, end = self._span(function)
            start = end - len(name)
            yield Mutation("name", function.lineno, start, end, NAMES[name].encode())

    def _between(
        self,
        left: ast.expr,
        right: ast.expr,
        kind: str,
        table: Mapping[Any, tuple[str, str]],
        op: ast.AST,
    ) -> Iterator[Mutation]:
        if type(op) in table:
            old, new = table[type(op)]
            yield from self._token(left, right, kind, old.encode(), new.encode())

    def _token(
        self, left: ast.expr, right: ast.expr, kind: str, old: bytes, new: bytes
    ) -> Iterator[Mutation]:
        """The operator that stands between two expressions."""
        start, end = self._span(left)[1], self._span(right)[0]
        place = re.search(re.escape(old), self.source[start:end])
        if place:
            at = start + place.start()
            line = left.lineno + self.source[self._span(left)[0] : at].count(b"\n")
            yield Mutation(kind, line, at, at + len(old), new)

    def _instead(self, kind: str, node: ast.expr, part: ast.expr) -> Mutation:
        start, end = self._span(part)
        return self._change(kind, node, b"(" + self.source[start:end] + b")")

    def _change(self, kind: str, node: ast.expr, text: bytes) -> Mutation:
        return Mutation(kind, node.lineno, *self._span(node), text)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[end_line - 1] + end_column


def modules() -> dict[str, list[str]]:
    """Return the tests of each file that is mutated, by its path in the package."""
    package = ROOT / PACKAGE
    files = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
    return {file: tests_of(file) for file in files if not file.endswith("__init__.py")}


def tests_of(file: str) -> list[str]:
    """Return the tests of a file, by its path in the package: those of its room, nearest first."""
    package, room, *inner = Path(file).with_suffix("").parts
    there, name = _test_files(ROOT), (inner or [room])[-1].strip("_")
    folder = f"tests/{'app' if package == 'fedcluster_app' else 'library'}/{room}/"
    own = sorted(path for path in there.values() if path.startswith(folder))
    own.sort(key=lambda path: name not in path)
    names = f"{ELSEWHERE.get(f'{package}/{room}', '')} {EVERYWHERE}".split()
    return list(dict.fromkeys([*own, *(there[f"test_{each}"] for each in names)]))


@cache
def _test_files(root: Path) -> dict[str, str]:
    """Return the files of tests by their names, wherever they stand."""
    found = (root / "tests").rglob("test_*.py")
    return {path.stem: path.relative_to(root).as_posix() for path in found}


def sample(sources: dict[str, bytes], n: int, seed: int) -> list[tuple[str, Mutation]]:
    """Draw n places among all that can be mutated, and one mutation at each."""
    places = [(file, each) for file in sources for each in mutations(sources[file])]
    draw = random.Random(seed)
    drawn = draw.sample(places, min(n, len(places)))
    return [(file, draw.choice(changes)) for file, changes in drawn]


def _not_copied(folder: str, names: Sequence[str]) -> set[str]:
    """Return what is hidden, and at the root what was made there."""
    made = {"site", "demo"} if Path(folder) == ROOT else set()
    return {name for name in names if name.startswith(".") or name in made}


class Copy:
    """A copy of the tree, in which one file at a time is another."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(ROOT, self.root, ignore=_not_copied, symlinks=True)
        conftest = self.root / "tests" / "conftest.py"
        conftest.write_text(conftest.read_text("utf-8") + UNSHRUNK, "utf-8")
        self.compiled = folder / "compiled"

    def passes(self, tests: Sequence[str], *, compiled_anew: bool, limit: float) -> bool:
        """Run tests, and say whether all of them pass in time."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        if compiled_anew:  # what is cached beside the sources stays as it is
            shutil.rmtree(self.compiled, ignore_errors=True)
            environment["NUMBA_CACHE_DIR"] = str(self.compiled)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not network and not long"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            ran = subprocess.run(
                command, cwd=self.root, env=environment, timeout=limit, capture_output=True
            )
        except subprocess.TimeoutExpired:
            return False
        if ran.returncode in (3, 4, 5):  # pytest itself failed
            raise RuntimeError(ran.stdout.decode() + ran.stderr.decode())
        return ran.returncode == 0

    def survives(self, file: str, mutation: Mutation, limit: float) -> bool:
        """Say whether the tests of a file pass although it is mutated."""
        path = self.root / PACKAGE / file
        original, times = path.read_bytes(), path.stat()
        tests = [f"{PACKAGE}/{file}", *tests_of(file)]
        try:
            path.write_bytes(mutation.apply(original))
            return self.passes(
                tests, compiled_anew=file.startswith("fedcluster/kernels/"), limit=limit
            )
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


UNSHRUNK = """

from hypothesis import Phase

quick, phases = settings.get_profile("quick"), (Phase.explicit, Phase.generate)
settings.register_profile("mutants", quick, phases=phases)
settings.load_profile("mutants")
"""
"""For the copy: a failing example need not be made small."""


def described(file: str, source: bytes, mutation: Mutation) -> str:
    """Show the lines that a mutation changes, before and after."""
    before, after = source.splitlines(), mutation.apply(source).splitlines()
    first = next(i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    rest = len(before) - first - 1
    while rest and before[-rest] != after[-rest]:
        rest -= 1
    lines = [f"{PACKAGE}/{file}:{first + 1}  {mutation.kind}"]
    lines += [f"    - {line.decode().strip()}" for line in before[first : len(before) - rest]]
    lines += [f"    + {line.decode().strip()}" for line in after[first : len(after) - rest]]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a sample of mutants and print what became of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=60, help="how many mutants (60)")
    parser.add_argument("--seed", type=int, default=0, help="which sample (0)")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for a mutant (1800)")
    parser.add_argument("--at-least", type=float, help="fail if a smaller share is killed")
    parser.add_argument("--list", action="store_true", help="show the sample and run nothing")
    given = parser.parse_args(arguments)
    files = [file for file in modules() if given.only in file]
    sources = {file: (ROOT / PACKAGE / file).read_bytes() for file in files}
    drawn = sample(sources, given.n, given.seed)
    if given.list:
        print("\n".join(described(file, sources[file], mutation) for file, mutation in drawn))
        return 0
    survivors = _try_out(drawn, sources, given.limit)
    killed = len(drawn) - len(survivors)
    print(f"\n{killed} of {len(drawn)} mutants killed, {killed / max(len(drawn), 1):.0%}.")
    if survivors:
        print("Survivors; a person says which of them are equivalent:")
        print("\n".join(survivors))
    return int(given.at_least is not None and killed < given.at_least * len(drawn))


def _try_out(
    drawn: Sequence[tuple[str, Mutation]], sources: dict[str, bytes], limit: float
) -> list[str]:
    """Return what survives, described."""
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        tests = sorted({name for file, _ in drawn for name in tests_of(file)})
        if tests and not copy.passes(tests, compiled_anew=False, limit=10 * limit):
            raise SystemExit("The tests fail without any mutant: mend them first.")
        for i, (file, mutation) in enumerate(drawn, start=1):
            alive = copy.survives(file, mutation, limit)
            shown = described(file, sources[file], mutation)
            print(f"{i:3} {'SURVIVED' if alive else 'killed  '} {shown}", flush=True)
            survivors += [shown] if alive else []
    return survivors


if __name__ == "__main__":
    sys.exit(main())
