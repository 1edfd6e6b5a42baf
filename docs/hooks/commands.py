"""Make the reference of the command line from the program, while the site is built.

The page ``commands.md`` ends with each command: its help, its arguments and its options.
"""

import re
from collections.abc import Iterator
from dataclasses import fields
from html import escape
from typing import Any

import typer

from fedcluster.recipes.specifications import Fit, RunOptions, SelectK
from fedcluster_app.cli import app
from fedcluster_app.cli._options import OPTIONS, Scaling
from fedcluster_app.cli._study import sections


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page, with all commands below if it is theirs."""
    if page.file.src_uri != "commands.md":
        return markdown
    return "\n\n".join([markdown, *keys(), *shown()])


def keys() -> Iterator[str]:
    """Yield a table of the keys of each table of a study file that are no options."""
    for section in ("prepare", "fit", "select_k", "run"):
        rows = [
            f"| `{each.name}` | {plain(help_of(section, each.name))} |"
            for each in fields(sections()[section])
            if each.name not in OPTIONS
        ]
        yield "\n".join([f"| `[{section}]` | |\n|---|---|", *rows])


def help_of(section: str, name: str) -> str:
    """Return what is said of a key where it is declared."""
    kinds: dict[str, Any] = {"prepare": Scaling, "select_k": SelectK, "run": RunOptions}
    declared = {
        each.name: each.metadata.get("help", "") for each in fields(kinds.get(section, Fit))
    }
    return str(declared.get(name, "")) or "Public bounds of each column: [[0, 120], [10, 60]]."


def shown() -> Iterator[str]:
    """Yield a section for each command that does something, in the order of the help."""
    every = typer.main.get_command(app)
    for name, command in commands(every, "fedcluster"):
        yield f"## {name}"
        yield from (plain(each) for each in re.split(r"\n\s*\n", command.help or ""))
        for title, kind in {"Arguments": "argument", "Options": "option"}.items():
            rows = [row(each) for each in command.params if each.param_type_name == kind]
            if rows:
                yield "\n".join([f"| {title} | |\n|---|---|", *rows])
        if command.epilog:
            yield f"```sh\n{command.epilog.removeprefix('Example: ')}\n```"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each command below a group with its whole name."""
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for part in command.list_commands(None) if below else ():
        if not below[part].hidden:
            yield from commands(below[part], f"{name} {part}")


def row(parameter: Any) -> str:
    """Return one line of a table: the names of a parameter, and what it does."""
    if parameter.param_type_name == "argument":
        names = f"`{argument(parameter)}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    described = getattr(parameter, "type_descriptor", None) or parameter.type  # typer 0.29, 0.20
    takes = parameter.metavar or "|".join(getattr(described, "choices", None) or ())
    if takes and parameter.param_type_name == "option":
        names += f" `{takes}`".replace("|", "\\|")
    says = [plain(parameter.help or "")]
    if default := default_of(parameter):
        says.append(f"Default: {default}.")
    if parameter.required and parameter.param_type_name == "option":
        says.append("Required.")
    return f"| {names} | {' '.join(says)} |"


def argument(parameter: Any) -> str:
    """Return the name of an argument: in brackets if it may be left out, with dots for several."""
    name = parameter.metavar or parameter.name.upper()
    if not (parameter.metavar or parameter.required):
        name = f"[{name}]"
    return name if parameter.metavar or parameter.nargs == 1 else f"{name}..."


def default_of(parameter: Any) -> str:
    """Return the default that help shows, a single word as code; empty if it shows none."""
    default = shown = parameter.show_default
    if not isinstance(shown, str):
        default = str(parameter.default) if shown and parameter.default is not None else ""
    if isinstance(parameter.default, bool):  # a flag: the name of what it does, if it has two
        names = parameter.opts if parameter.default else parameter.secondary_opts
        default = names[0].lstrip("-") if parameter.secondary_opts else ""
    return plain(default) if " " in default else default and f"`{default}`"


def plain(text: str) -> str:
    """Return a paragraph in which nothing is taken for Markdown."""
    words = " ".join(text.replace("\b", "").split())
    return re.sub(r"([\\`*_{}\[\]|])", r"\\\1", escape(words, quote=False))
