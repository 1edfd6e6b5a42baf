"""Names that are imported at their first use: slow ones, and those of the application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from fedcluster.errors import NotInstalledError

__all__: list[str] = []  # exports nothing: the module is internal


def names_from(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names are defined in its modules.

    Parameters
    ----------
    package : str
        Its name.
    homes : mapping of str to str
        The module of each name, relative to the package; several names are separated by spaces.
    """
    home = {name: module for names, module in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return get


def of_application(module: str, name: str) -> Any:
    """Return a name of the application, which reads files and makes pages; no import needs it.

    Raises
    ------
    NotInstalledError
        If this library is installed alone.
    """
    try:
        return getattr(import_module(f"fedcluster_app.{module}"), name)
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"files and pages need the package fedcluster_app, and it lacks {error.name}: "
            "pip install fedcluster"
        ) from error


class LazyModule:
    """A library that is imported when the first of its names is used.

    Parameters
    ----------
    name : str
        The library.
    *parts : str
        Modules in it that are used as its names.
    """

    def __init__(self, name: str, *parts: str) -> None:
        self._name, self._parts = name, parts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    @cached_property
    def _library(self) -> ModuleType:
        for part in self._parts:
            import_module(f"{self._name}.{part}")
        return import_module(self._name)


def made_by(library: str, value: Any) -> bool:
    """Return whether a value is of a type of a library, without importing it.

    Examples
    --------
    >>> made_by("pyarrow", 1.0), made_by("builtins", 1.0)
    (False, True)
    """
    return type(value).__module__.partition(".")[0] == library
