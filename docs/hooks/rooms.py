"""Draw the tree of rooms into docs/design.md while the site is built.

    .venv/bin/python docs/hooks/rooms.py

prints the drawings, which are made from the code and from its contracts.
"""

import ast
import textwrap
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "src" / name for name in ("fedcluster", "fedcluster_app")]
WIDTH = 100


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page, with a drawing in each place for one."""
    if page.file.src_uri != "design.md":
        return markdown
    for name, drawing in {"rooms": rooms(), "floors": floors()}.items():
        assert f"<!-- {name} -->" in markdown, f"no place for {name}"
        markdown = markdown.replace(f"<!-- {name} -->", f"```\n{drawing}```")
    return markdown


def rooms() -> str:
    """Return the trees: what each room is about, and its modules."""
    lines = []
    for package in PACKAGES:
        lines.append(f"src/{package.name}/")
        for path in sorted(package.glob("*.py")):
            if path.stem != "__init__":
                lines += _entry(path.name, _about(path), [])
        for path in sorted(package.rglob("__init__.py")):
            room = path.parent.relative_to(package)
            if room.parts:
                modules = sorted(each.stem for each in path.parent.glob("*.py"))
                lines += _entry(f"{room}/", _about(path), [m for m in modules if m != "__init__"])
    return "\n".join(lines) + "\n"


def floors() -> str:
    """Return the layers of each package, from the ground up, as import-linter holds them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    drawn = []
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            drawn.append(f"{contract['containers'][0]}\n")
            drawn += [f"  <- {layer}\n" for layer in reversed(contract["layers"])]
    return "".join(drawn)


def _entry(name: str, about: str, modules: list[str]) -> list[str]:
    indent = " " * 24
    first, *more = textwrap.wrap(about, WIDTH - 24)
    listed = textwrap.wrap(", ".join(modules), WIDTH - 26)
    return [
        f"  {name:<22}{first}",
        *(indent + line for line in more),
        *(f"{indent}  {line}" for line in listed),
    ]


def _about(path: Path) -> str:
    """Return the first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    print(rooms(), floors(), sep="\n")
