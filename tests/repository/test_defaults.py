"""What a docstring says of a parameter's default is its default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import chain
from pkgutil import walk_packages
from typing import Any

import pytest

import fedcluster
import fedcluster_app

PACKAGES = (fedcluster, fedcluster_app)
DOCUMENTED = re.compile(r"^([\w, ]+?) : .*?\bdefault=(.+?)(?:, optional)?$", re.MULTILINE)


def of_ours() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every class, method and function of ours, once."""
    seen = set()
    packages = (walk_packages(each.__path__, f"{each.__name__}.") for each in PACKAGES)
    for info in chain.from_iterable(packages):
        if "transports" in info.name or info.name.endswith("__main__"):
            continue  # needs an extra; the command itself
        module = import_module(info.name)
        for name, found in vars(module).items():
            if getattr(found, "__module__", None) != info.name or not callable(found):
                continue
            members = [(name, found)]
            if inspect.isclass(found):
                members += [(f"{name}.{m}", v) for m, v in vars(found).items() if callable(v)]
            for path, each in members:
                if id(each) not in seen:
                    seen.add(id(each))
                    yield f"{info.name}.{path}", each


OURS = dict(of_ours())
CASES = {path: each for path, each in OURS.items() if DOCUMENTED.search(inspect.getdoc(each) or "")}


def value(text: str, where: dict[str, Any]) -> Any:
    """What a text in a docstring of a module means; a text with blanks says something in words."""
    try:
        return eval(text, where)
    except (SyntaxError, NameError):
        return text


@pytest.mark.parametrize("path", CASES)
def test_defaults_are_as_documented(path: str) -> None:
    documented, where = CASES[path], dict(vars(import_module(CASES[path].__module__)))
    parameters = inspect.signature(documented).parameters
    for names, text in DOCUMENTED.findall(inspect.getdoc(documented) or ""):
        for name in names.split(", "):
            assert parameters[name].default == value(text, where), name


def test_many_defaults_are_documented() -> None:
    assert len(CASES) > 30


@pytest.mark.parametrize(("name", "default"), [("seed", 0), ("max_rounds", 300)])
def test_a_default_is_the_same_everywhere(name: str, default: int) -> None:
    """A plan gives the same result alone and within another one that does not pass it on."""
    plans = [each for path, each in OURS.items() if "cli" not in path and inspect.isfunction(each)]
    given = [inspect.signature(each).parameters.get(name) for each in plans]
    found = [each.default for each in given if each and each.default is not inspect.Parameter.empty]
    assert len(found) > 3
    assert set(found) <= {default, None}  # None takes that of something else
