"""Type a page or a notebook as a newcomer does, in the environment of the Python that runs this.

It is a program of its own, with nothing but the standard library: the environment has only what
the page says. ``python newcomer.py PAGE`` ends with 1 at the first block that stops or shows
something else than the page.
"""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
PROMPT = re.compile(r"^\$ ", re.M)
NETWORK = ("federation ", "site ", "watch ", "check site.toml")
"""Commands that need other machines: `tests/network` runs them."""
ELSEWHERE = ("python -m pip ", *(f"fedcluster {each}" for each in NETWORK))


def main(page: Path) -> None:
    """Type all blocks of a page, or a notebook twice."""
    if page.suffix == ".ipynb":
        return run_notebook(page)
    scope: dict[str, object] = {"__name__": "__main__"}
    said = ""
    for i, (kind, text) in enumerate(BLOCK.findall(page.read_text("utf-8"))):
        sys.stdout.write(f"{page.name}, block {i} ({kind}):\n{text}")
        if kind == "python" and text.startswith(">>>"):
            run_session(text, f"block {i}", scope)
        elif kind == "python":
            exec(compile(text, f"block {i}", "exec"), scope)
        elif kind in ("sh", "console"):
            said = run_commands(text, shows=kind == "console") or said
        elif kind == "text" and said:  # a part of what the last command said
            shown = "\n".join(map(re.escape, text.split())).replace("\n", r"\s+")
            assert re.search(shown, said), f"{text}\nis not in\n{said}"
    return None


def run_session(text: str, name: str, scope: dict[str, object]) -> None:
    """Run lines after ``>>>`` and compare what they show."""
    example = doctest.DocTestParser().get_doctest(text, scope, name, name, 0)
    doctest.DebugRunner(optionflags=FLAGS).run(example, clear_globs=False)
    scope.update(example.globs)


def run_commands(text: str, *, shows: bool) -> str:
    """Run the commands of a block, and return what the last one said."""
    said = ""
    shown = PROMPT.split(text)[1:] if shows else text.replace("\\\n", " ").splitlines()
    for command, _, expected in (each.partition("\n") for each in shown):
        if not command.strip() or command.startswith(ELSEWHERE):
            continue
        program, *arguments = shlex.split(command, comments=True)
        path = sys.executable if program == "python" else Path(sys.executable).with_name(program)
        done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}: {said}"
        same = not shows or doctest.OutputChecker().check_output(expected, done.stdout, FLAGS)
        assert same, f"{command} shows\n{done.stdout}\ninstead of\n{expected}"
    return said


def run_notebook(page: Path) -> None:
    """Run all cells of a notebook, and all once more, as somebody who changes the first one."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(page, as_version=4)
    for again in notebook.cells[:]:
        notebook.cells.append(nbformat.from_dict({**again, "id": f"{again['id']}-again"}))
    NotebookClient(notebook, timeout=600).execute()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
