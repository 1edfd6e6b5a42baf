"""What ``--scale``, ``--missing`` and their like ask for, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcluster._choices import MISSING, SCALES
from fedcluster._specifications import parameter
from fedcluster.errors import InputError


@dataclass(frozen=True, slots=True)
class Scaling:
    """The options of columns that every command takes; a test holds their names equal."""

    scale: str = parameter(
        "standard",
        "Of numbers. standard: mean 0, variance 1. robust: by quartiles. minmax: by --bounds. "
        "none: as they are.",
        choices=SCALES,
    )
    missing: str | None = parameter(
        None,
        "Missing values: an error; their rows dropped; filled in with mean or median.",
        type=str,
        choices=MISSING,
        show_default="mean",
    )
    categories: str | None = parameter(
        None,
        "Columns that become one of 0 and 1 for each value.",
        type=str,
        metavar="A,B|none",
        show_default="text with few values",
    )


@dataclass(frozen=True, slots=True)
class Shaping:
    """The options of columns that only a fit takes."""

    log: str | None = parameter(
        None, "Columns of which log(1 + x) is taken.", type=str, metavar="A,B"
    )
    bounds: str | None = parameter(
        None,
        "Bounds of columns; values outside are moved there.",
        type=str,
        metavar="A=LOW:HIGH,...",
    )
    pca: int | None = parameter(
        None, "Cluster by the first N principal components.", type=int, metavar="N"
    )


NO_SHAPING = Shaping()


def asked(scaling: Scaling, columns: str | None, shaping: Shaping = NO_SHAPING) -> Any:
    """Return the options as a `PreprocessingSpec`; None where rows are to be taken as they are."""
    from fedcluster.io._columns import column_list
    from fedcluster.preprocessing import PreprocessingSpec

    categories, log, bounds, pca = scaling.categories, shaping.log, shaping.bounds, shaping.pca
    if scaling.scale == "none" and not any((scaling.missing, categories, log, bounds, pca)):
        return None
    given = categories in (None, "auto", "none")
    try:
        return PreprocessingSpec(
            scale=scaling.scale,
            missing=scaling.missing or "mean",
            categories=categories or "auto"
            if given
            else column_list(categories, "--categories") or (),
            log=column_list(log, "--log") or (),
            bounds={} if bounds is None else _bounds(bounds),
            pca=pca,
            columns=column_list(columns),
        )
    except InputError:
        raise
    except ValueError as error:
        said = str(error)
        raise InputError(f"--{said}" if said.startswith("pca") else said) from error


def _bounds(text: str) -> dict[str, tuple[float, float]]:
    """Return A=LOW:HIGH, with commas between, as pairs by column."""
    by_column = {}
    for part in text.split(","):
        name, _, both = part.rpartition("=")
        try:
            low, high = map(float, both.split(":"))
        except ValueError:
            name = ""
        if not name.strip():
            raise InputError(
                f"--bounds {text!r} must be a column with two numbers, or several of them with "
                "commas between, as in age=0:120,bmi=10:60"
            )
        by_column[name.strip()] = (low, high)
    return by_column


def unlabelled(labels: Mapping[str, Any]) -> list[str]:
    """Return how many rows of each site have no label."""
    counts = {site: int((each < 0).sum()) for site, each in labels.items()}
    some = [f"{n:,} of {site}" for site, n in counts.items() if n]
    return [f"Rows without a cluster (-1): {', '.join(some)}."] if some else []
