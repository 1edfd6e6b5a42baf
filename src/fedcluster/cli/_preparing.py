"""What ``--scale``, ``--missing`` and their like ask for, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer


class ScaleName(StrEnum):
    """The names that ``--scale`` takes."""

    STANDARD = "standard"
    MINMAX = "minmax"
    ROBUST = "robust"
    NONE = "none"


class MissingName(StrEnum):
    """The names that ``--missing`` takes."""

    ERROR = "error"
    DROP = "drop"
    MEAN = "mean"
    MEDIAN = "median"


Scale = Annotated[
    ScaleName,
    typer.Option(
        help="Of numbers. standard: mean 0, variance 1. robust: by quartiles. minmax: by --bounds. "
        "none: as they are."
    ),
]
Missing = Annotated[
    MissingName | None,
    typer.Option(
        show_default="mean",
        help="Missing values: an error; their rows dropped; filled in with mean or median.",
    ),
]
Categories = Annotated[
    str | None,
    typer.Option(
        metavar="A,B|none",
        show_default="text with few values",
        help="Columns that become one of 0 and 1 for each value.",
    ),
]
Log = Annotated[
    str | None, typer.Option(metavar="A,B", help="Columns of which log(1 + x) is taken.")
]
Bounds = Annotated[
    str | None,
    typer.Option(
        metavar="A=LOW:HIGH,...",
        help="Bounds of columns; values outside are moved there.",
    ),
]
Pca = Annotated[
    int | None, typer.Option(metavar="N", help="Cluster by the first N principal components.")
]


def asked(
    scale: ScaleName,
    missing: MissingName | None,
    categories: str | None,
    columns: str | None = None,
    log: str | None = None,
    bounds: str | None = None,
    pca: int | None = None,
) -> Any:
    """The options as a `PreprocessingSpec`; None where rows are to be taken as they are."""
    from fedcluster.errors import InputError
    from fedcluster.io._columns import column_list
    from fedcluster.preprocessing import PreprocessingSpec

    if scale == ScaleName.NONE and not any((missing, categories, log, bounds, pca)):
        return None
    given = categories in (None, "auto", "none")
    chosen = categories or "auto" if given else column_list(categories, "--categories") or ()
    logs = column_list(log, "--log") or ()
    limits = {} if bounds is None else _bounds(bounds)
    used = column_list(columns)
    try:
        return PreprocessingSpec(
            scale=scale.value,
            missing=(missing or MissingName.MEAN).value,
            categories=chosen,
            log=logs,
            bounds=limits,
            pca=pca,
            columns=used,
        )
    except ValueError as error:
        said = str(error)
        raise InputError(f"--{said}" if said.startswith("pca") else said) from error


def _bounds(text: str) -> dict[str, tuple[float, float]]:
    """A=LOW:HIGH, with commas between."""
    from fedcluster.errors import InputError

    found = {}
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
        found[name.strip()] = (low, high)
    return found


def shown(estimator: Any, width: int, elsewhere: str) -> list[Any]:
    """What people are told of the preparation of a fit: sentences, and the centres in units."""
    from fedcluster import report

    if estimator.preprocessor_ is None:
        return []
    table = report.centers_table(
        estimator.preprocessor_, estimator.cluster_centers_, width, elsewhere
    )
    return [*sentences(estimator), *([table] if table else [])]


def sentences(estimator: Any) -> list[str]:
    """What people are told of a preparation itself."""
    from fedcluster.preprocessing import in_words

    if estimator.preprocessor_ is None:
        return []
    return in_words(estimator.prepare, estimator.preprocessor_, estimator.fit_report_)


def content(estimator: Any) -> dict[str, Any]:
    """The same for programs."""
    if estimator.preprocessor_ is None:
        return {}
    found = estimator.fit_report_
    return {
        "preprocessing": {
            "missing": {site: dict(columns) for site, columns in found.missing.items()},
            "left_out": dict(found.left_out),
            "pooled": {name: list(levels) for name, levels in found.pooled.items()},
            "only_at": [[*key, site] for key, site in found.only_at.items()],
        }
    }


def unlabelled(labels: Mapping[str, Any]) -> list[str]:
    """How many rows of each site have no label."""
    counts = {site: int((each < 0).sum()) for site, each in labels.items()}
    some = [f"{n:,} of {site}" for site, n in counts.items() if n]
    return [f"Rows without a cluster (-1): {', '.join(some)}."] if some else []
