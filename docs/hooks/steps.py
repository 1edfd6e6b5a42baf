"""List what each step may be asked in docs/what-leaves.md, from what it declares."""

import sys
from pathlib import Path
from typing import Any

from fedcluster.core import Step
from fedcluster.core.ranges import allowed_of


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page, with the table of steps where it has a place for it."""
    if page.file.src_uri != "what-leaves.md":
        return markdown
    tests = Path(__file__).parents[2] / "tests"
    sys.path[:0] = [str(tests / "library" / "algorithms"), str(tests)]
    from test_laws import STEPS  # each with the states that it may be asked about

    return markdown.replace("<!-- steps -->", shown(STEPS))


def shown(steps: list[Step]) -> str:
    """Return a table with a line for each of some steps."""
    head = "| step | parameters | state |\n|---|---|---|"
    return "\n".join([head, *sorted(set(map(declared, steps)))])


def declared(step: Step) -> str:
    """Return a line of the table."""
    allowed = allowed_of(step)
    ranges = "; ".join(f"{name} {held}" for name, held in allowed.fields.items())
    lengths = "; ".join(f"{name} {held}" for name, held in allowed.sizes.items())
    memory = "; ".join(f"{name} {held}" for name, held in allowed.memory.items())
    about = "; ".join(filter(None, [f"{allowed.centers} centres", memory, lengths]))
    shown = f"| `{type(step).__name__}` | {ranges or '-'} | {about} |"
    return shown.replace("max_clusters", "K").replace("1e+100", "1e100")
