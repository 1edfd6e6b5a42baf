"""Plugins: modules with formats, steps and preparations of users, loaded by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from fedcluster.core import check_step
from fedcluster.errors import InputError
from fedcluster.options.choices import OWN_STEPS, PARTS, PREPARATIONS
from fedcluster_app.tables.sources import FORMATS, Format

GROUP = "fedcluster"
"""The group of entry points in which an installed package names its plugins."""

LOADED: list[str] = []
"""Names of this process's plugins, in order; processes that it starts load them too."""


def import_from_current_folder() -> None:
    """Let modules in the current folder be imported, with lower priority than installed ones."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)


def load_plugins(names: Iterable[str]) -> None:
    """Import plugins, and register their formats, steps and preparations in this process.

    A plugin is a module. Its ``FORMATS``, if it has any, is a mapping of endings of files to
    `Format`; its classes with a ``client_step`` are steps, and its classes with ``apply``,
    ``invert``, ``names`` and ``check`` are preparations.

    Parameters
    ----------
    names : iterable of str
        Names of modules, or of entry points of the group "fedcluster" that lead to modules.

    Raises
    ------
    InputError
        If a plugin cannot be imported or is incomplete, or if a name or an ending is already taken.
    """
    for name in names:
        if name in LOADED:
            continue
        try:
            found = list(entry_points(group=GROUP, name=name))
            module = found[0].load() if found else import_module(name)
        except Exception as error:  # importing a user's module may raise anything
            raise InputError(
                f"plugin {name!r} cannot be imported: {type(error).__name__}: {error}; install it, "
                "or let PYTHONPATH name its folder"
            ) from error
        if not isinstance(module, ModuleType):
            raise InputError(f"plugin {name!r} is no module")
        _register(name, module)
        LOADED.append(name)


def _register(plugin: str, module: ModuleType) -> None:
    formats = getattr(module, "FORMATS", {})
    if not isinstance(formats, Mapping) or not all(isinstance(f, Format) for f in formats.values()):
        raise InputError(f"plugin {plugin!r}: FORMATS must map endings of files to Format")
    _add(plugin, FORMATS, formats)
    root = module.__name__.partition(".")[0]
    own = {
        name: kind
        for name, kind in vars(module).items()
        if isinstance(kind, type) and kind.__module__.partition(".")[0] == root
    }
    steps = {name: kind for name, kind in own.items() if hasattr(kind, "client_step")}
    for kind in steps.values():
        try:
            check_step(kind)
        except TypeError as error:
            raise InputError(f"plugin {plugin!r}: {error}") from error
    _add(plugin, OWN_STEPS, steps)
    others = {name: kind for name, kind in own.items() if name not in steps}
    whole = {n: kind for n, kind in others.items() if all(hasattr(kind, part) for part in PARTS)}
    _add(plugin, PREPARATIONS, whole)


def _add(plugin: str, known: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, each in more.items():
        if known.setdefault(name, each) is not each:
            raise InputError(f"plugin {plugin!r}: {name!r} is the name of another one; rename it")
