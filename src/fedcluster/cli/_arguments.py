"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli._choices import AveragingName, DecimalSign, RuleName

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", show_default=False, help="The sites' files."),
]
ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", show_default=False, help="The model.json of a fit, or its folder."
    ),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", show_default=False, help="Folder to write.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files of an earlier run in --out.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Makes every random choice.")]
SiteColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column that names each row's site, in one file of all."),
]
WeightColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column with the rows' weights.")
]
GroupColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column that says whose row it is: limits count persons."),
]
Decimal = Annotated[
    DecimalSign, typer.Option(help="What decimals begin with in CSV files, as in 36.6 or 36,6.")
]
SumsOnly = Annotated[
    bool,
    typer.Option("--sums-only", help="Send sums alone: no site describes its rows by means."),
]
SmallestK = Annotated[int, typer.Option("--k-min", metavar="K", help="The first k to try.")]
LargestK = Annotated[
    int | None,
    typer.Option("--k-max", metavar="K", show_default="12", help="The last k to try."),
]
Rule = Annotated[
    RuleName,
    typer.Option(
        help="Who decides. vote: most of mixture-bic, gap, calinski-harabasz and "
        "squared-silhouette. fuzzy-db: the framework of Stallmann & Wilbik. Or another index."
    ),
]
Elbow = Annotated[
    bool,
    typer.Option("--elbow", help="Where the index's curve bends most, not its best value."),
]
Averaging = Annotated[
    AveragingName,
    typer.Option(help="With --rule fuzzy-db: by k-means (avg_2) or by position (avg_1)."),
]
GapBounds = Annotated[
    str | None,
    typer.Option(
        "--bounds",
        metavar="LOW:HIGH,...",
        show_default="from mean and variance",
        help="Bounds of each column that everybody knows, for the gap statistic.",
    ),
]
Fuzzifier = Annotated[
    float | None,
    typer.Option("-m", metavar="M", help="Cluster by fuzzy c-means with this fuzzifier."),
]
