"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli.choices import DecimalSign

__all__ = [
    "AsJson",
    "Decimal",
    "Files",
    "GroupColumn",
    "ModelFile",
    "Out",
    "Overwrite",
    "Quiet",
    "Seed",
    "SiteColumn",
    "SumsOnly",
    "WeightColumn",
]

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", show_default=False, help="The sites' files."),
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", show_default=False, help="The model.json of a fit.")
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
