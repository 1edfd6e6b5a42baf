"""Users' own preparations: what is done to rows after everything in a `PreprocessingSpec`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol

from fedcluster.core import Floats
from fedcluster.errors import InputError, PolicyError
from fedcluster.options.choices import PARTS, PREPARATIONS
from fedcluster.options.choices import made as made_by_name


class Preparation(Protocol):
    """A user's own map of rows, for ``prepare=``: a frozen dataclass of numbers and tuples.

    Each row is mapped independently, in the same way at every site. A preparation that has to be
    fitted also has a method ``fit(names)``: a plan that asks the sites and returns the fitted
    preparation.
    """

    def names(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the q prepared columns, given those of the d raw ones."""

    def apply(self, X: Floats) -> Floats:
        """Return prepared rows (n, q) of rows (n, d)."""

    def invert(self, X: Floats) -> Floats:
        """Return rows (n, d) in the units of the columns from prepared rows (n, q)."""

    def check(self, width: int) -> None:
        """Raise ValueError if rows with ``width`` columns cannot be mapped by these parameters.

        A site calls this before it reads any row, because the parameters come from the coordinator.
        """


def preparation(given: Any) -> Preparation:
    """Return a user's own preparation, imported if it is given by its dotted name.

    Raises
    ------
    InputError
        If it does not exist, or is incomplete.
    """
    try:
        made: Preparation = made_by_name(given) if isinstance(given, str) else given
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"preparation {given!r} cannot be made: {error}") from error
    lacking = [part for part in PARTS if not callable(getattr(made, part, None))]
    if lacking or not is_dataclass(made) or isinstance(made, type):
        what = f"lacks {', '.join(lacking)}" if lacking else "is no instance of a frozen dataclass"
        raise InputError(f"preparation {made!r} {what}")
    return made


def own_to_plain(own: Any) -> dict[str, Any]:
    """Return a user's own preparation as JSON-compatible values."""
    return {"own": type(own).__name__, "fields": asdict(own)}


def own_from_plain(content: Mapping[str, Any]) -> Preparation:
    """Return the preparation from its plain form, if its class is known here.

    Raises
    ------
    PolicyError
        If no loaded plugin defines its class.
    ValueError, LookupError, TypeError
        If the content has another form.
    """
    name, values = content["own"], content["fields"]
    if not isinstance(name, str) or name not in PREPARATIONS:
        raise PolicyError(
            f"preparation {str(name)[:100]!r} is of no plugin that is loaded here: name its module "
            "by --plugin, by plugins in a study.toml or site.toml, or in Python by load_plugins"
        )
    made: Preparation = PREPARATIONS[name](**{key: frozen(each) for key, each in values.items()})
    return made


def frozen(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists; numbers must be finite."""
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers of a preparation must be finite")
    if value is not None and not isinstance(value, str | int | float | bool):
        raise TypeError("a preparation has numbers, texts and lists of them")
    return value
