"""Options and arguments of the commands, made from the specifications that declare them."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

import typer

from fedcluster.errors import InputError
from fedcluster.options.choices import ALGORITHMS, FUZZY_ALGORITHMS, PROTECTIONS, SCALES
from fedcluster.options.choices import MISSING as MISSING_TREATMENTS
from fedcluster.options.refusals import refused
from fedcluster.recipes.specifications import (
    SEED,
    WORDS,
    Fit,
    SelectK,
    fit_of,
    parameter,
)

OWN = ("help", "flags", "choices", "least")
"""Options of `parameter` that are not typer's."""
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (bool, int, float, str, Path)}
"""Types of fields that are options, by name."""


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument of a command, with its metavar and text for the help."""
    return typer.Argument(metavar=metavar, help=text, **{"show_default": False, **more})


def option(metavar: str, text: str, *flags: str, **more: Any) -> Any:
    """Return an option with a value, with its metavar and text for the help."""
    return typer.Option(*flags, metavar=metavar, help=text, **{"show_default": False, **more})


Files = Annotated[
    list[str],
    argument("FILE...", "Files of the sites."),
]
ModelFile = Annotated[
    Path,
    argument("MODEL", "model.json of a fit, or its folder."),
]
FOLDER = option("DIR", "Folder for the results.", "--out", "-o", show_default=True)
Out = Annotated[Path, FOLDER]
OutIfAny = Annotated[Path | None, FOLDER]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]
Engine = Annotated[
    str | None,
    option(
        "dask[=ADDRESS]",
        "Read the partitions of Parquet files on a Dask cluster: one on this machine, or that of "
        "a scheduler.",
        "--engine",
    ),
]
Seed = Annotated[int, option("N", SEED, show_default=True)]
Columns = Annotated[str | None, option("A,B,C", "Columns to use; by default all.")]
Fuzzy = Annotated[
    bool, typer.Option("--fuzzy", help="Fuzzy c-means: rows get memberships in all clusters.")
]
Elbow = Annotated[
    bool,
    typer.Option(
        "--elbow", help="Choose where the curve of the index bends most, not its best value."
    ),
]
GapBounds = Annotated[
    str | None,
    option(
        "LOW:HIGH,...",
        "Publicly known bounds of each column, for the gap statistic.",
        "--bounds",
        show_default="from mean and variance",
    ),
]


def from_current_folder(value: Any) -> Any:
    """Return the value of an option, which may name modules in the current folder."""
    if value:
        from fedcluster_app.tables.plugins import import_from_current_folder

        import_from_current_folder()
    return value


def load_named(names: list[str] | None) -> list[str] | None:
    """Load the plugins that an option names, including those in the current folder."""
    if from_current_folder(names):
        from fedcluster_app.tables.plugins import load_plugins

        load_plugins(names or ())
    return names


PLUGIN: dict[str, Any] = {
    "metavar": "MODULE",
    "help": "Load formats, steps and preparations of your own from a module; may be repeated.",
    "callback": load_named,
    "is_eager": True,
    "show_default": False,
}
Plugin = Annotated[list[str] | None, typer.Option("--plugin", **PLUGIN)]
OwnAlgorithm = Annotated[
    str | None,
    option(
        "MODULE.NAME",
        "Your own algorithm that made the model and assigns rows.",
        "--algorithm",
        callback=from_current_folder,
    ),
]
OwnMetrics = Annotated[
    list[str] | None,
    option(
        "MODULE.NAME",
        "A metric of your own; may be repeated.",
        "--metric",
        callback=from_current_folder,
    ),
]
AlsoProfile = Annotated[
    bool,
    typer.Option(
        "--profile", help="Also describe what sets the clusters apart, in the same rounds."
    ),
]
Beside = Annotated[
    Path | None,
    option(
        "MODEL",
        "Another model, to compare with: print the adjusted Rand index, and the rows in each pair "
        "of clusters.",
        "--beside",
    ),
]
KeepNames = Annotated[
    bool, typer.Option("--keep-names", help="Store the names of the clusters in the model.")
]
LeastRows = Annotated[int, option("ROWS", "Hold back sums over fewer rows.", show_default=True)]
MinClusterSize = Annotated[
    int | None,
    option("ROWS", "Hold back clusters with fewer rows.", show_default="the algorithm's"),
]


Exclude = Annotated[str | None, option("A,B,C", "Columns to leave out.")]
Lenient = Annotated[
    bool,
    typer.Option(
        "--lenient", help="Leave out columns of which a cell cannot be read, instead of stopping."
    ),
]
Dates = Annotated[
    str | None,
    option(
        "A=HOW,...|HOW",
        "Turn dates into numbers, which are otherwise left out. age: years up to today, or "
        "age:YYYY-MM-DD; month; weekday: 1 is Monday; since: days since 2000, or "
        "since:YYYY-MM-DD. With :mdy at the end, months come first in dates such as 3/4/2021.",
    ),
]


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """Options for the values of files, both of rows to cluster and of new rows."""

    decimal: str | None = parameter(
        None,
        "Decimal sign of CSV files, as in 36.6 or 36,6.",
        choices=(".", ","),
        show_default="detected if certain",
    )
    encoding: str | None = parameter(
        None,
        "Character encoding of CSV files, such as cp1252 or latin-1.",
        metavar="NAME",
        show_default="UTF-8, or detected",
    )
    skip_rows: int | None = parameter(
        None,
        "Lines above the table in CSV and Excel files.",
        metavar="N",
        show_default="detected if certain",
    )
    missing_values: str | None = parameter(
        None, 'Values that mean "missing", in all columns or one.', metavar="[COLUMN:]VALUE,..."
    )
    codes: str | None = parameter(
        None, "New names for texts of a column.", metavar="COLUMN:TEXT=NAME,..."
    )
    factor: str | None = parameter(
        None,
        "Factors for columns of a site in another unit; also as in 1.8x+32.",
        metavar="SITE:COLUMN=FACTOR,...",
    )
    rename: str | None = parameter(
        None, "New names for columns, at all sites or one.", metavar="[SITE:]OLD=NEW,..."
    )
    plugin: list[str] | None = parameter(
        None, PLUGIN["help"], "--plugin", **{k: v for k, v in PLUGIN.items() if k != "help"}
    )


@dataclass(frozen=True, slots=True)
class FileOptions(ValueOptions):
    """Options for files of rows, and for the columns, which not every command takes."""

    site_column: str | None = parameter(
        None, "Column with the site of each row, if one file holds all sites.", metavar="NAME"
    )
    weight_column: str | None = parameter(
        None, "Column with the weights of the rows.", metavar="NAME"
    )
    group_column: str | None = parameter(
        None, "Column with the person of each row; limits then count persons.", metavar="NAME"
    )
    protection: str | None = parameter(
        None,
        "groups: use means of groups of rows, as a federation over a network does. limits: use "
        "the rows. By default limits, or what a site file says.",
        choices=PROTECTIONS,
        show_default=False,
    )
    columns: str | None = None
    exclude: str | None = None
    lenient: bool = False
    dates: str | None = None
    label_column: str | None = None
    id_column: str | None = None


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Options for keys and for tables that are written with the clusters of rows."""

    id_column: str | None = parameter(
        None, "Column with the keys of the rows, written beside their clusters.", metavar="NAME"
    )
    append: bool = parameter(
        False,
        "Write each site's table again with the cluster of each row, its name, the distance to its "
        "centre and how clear the assignment is.",
        "--append",
    )


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """Options for the output of a command, and for replacing files."""

    overwrite: bool = parameter(False, "Replace the files of an earlier run.", "--overwrite")
    as_json: bool = parameter(False, "Print one JSON object, for programs.", "--json")
    quiet: bool = parameter(False, "Print errors and warnings only.", "--quiet", "-q")

    def check_folder(self, out: Path | None) -> None:
        """Raise an error for a folder that cannot be written, if one is given."""
        if out is not None:
            from fedcluster_app.tables.outputs import check_folder

            check_folder(out, overwrite=self.overwrite)


def number_of_clusters(text: str) -> int | str | tuple[int, ...]:
    """Return the value of ``-k``: a number, "auto", or FIRST-LAST to choose from.

    Examples
    --------
    >>> number_of_clusters("8"), number_of_clusters("auto"), number_of_clusters("1-3")
    (8, 'auto', (1, 2, 3))
    """
    if text == "auto":
        return text
    several = re.fullmatch(r"(\d+)-(\d+)", text)
    if several and 1 <= int(several[1]) <= int(several[2]):
        return tuple(range(int(several[1]), int(several[2]) + 1))
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is not a number of clusters; give a whole number, auto, or the numbers to "
            "choose from as in 2-20"
        ) from None


def algorithms(incomplete: str = "") -> list[str]:
    """Return the package's algorithms for the shell's completion.

    Examples
    --------
    >>> algorithms("f")
    ['fkm', 'fedavg', 'fcm', 'ffcm']
    """
    names = dict.fromkeys([*ALGORITHMS, *FUZZY_ALGORITHMS])
    return [name for name in names if name.startswith(incomplete)]


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace specifications among the parameters of a command by their options.

    A parameter whose type is a dataclass becomes an option for each of its fields that `parameter`
    declares; the command receives the specification, or of a fit the words that say its kind.
    Required options come first.
    """
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    kinds = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}
    parameters: list[inspect.Parameter] = []
    for name, own in signature.parameters.items():
        if name in kinds:
            parameters += map(_option, _declared(kinds[name]))
        else:
            parameters.append(own.replace(annotation=hints[name]))
    parameters.sort(key=lambda each: each.default is not each.empty)

    @wraps(command)
    def call(**values: Any) -> Any:
        for name, kind in kinds.items():
            own = {each.name: values.pop(each.name) for each in _declared(kind)}
            plain = {f: v.value if isinstance(v, StrEnum) else v for f, v in own.items()}
            make = dict if kind is Fit else kind
            values[name] = make(**{f: v for f, v in plain.items() if v is not None})
        return command(**values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    call.__signature__ = inspect.Signature([p.replace(kind=keyword) for p in parameters])  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _declared(kind: Any) -> list[Field[Any]]:
    """Return the fields of a specification that are options."""
    every = WORDS.values() if kind is Fit else fields(kind)
    return [each for each in every if each.metadata]


def _option(declared: Field[Any]) -> inspect.Parameter:
    """Return the option of a field of a specification."""
    metadata = declared.metadata
    kind: Any = KINDS.get(str(declared.type).split(" | ")[0], str)
    default: Any = declared.default if isinstance(declared.default, kind) else None
    shown = {key: value for key, value in metadata.items() if key not in OWN}
    if declared.default is MISSING:
        default = inspect.Parameter.empty
    if declared.name == "plugin":
        kind = list[str]
    if declared.name == "n_clusters":
        shown["parser"], kind = number_of_clusters, Any
    if declared.name == "algorithm":
        shown["autocompletion"] = algorithms
    if "choices" in metadata:
        make: Any = StrEnum  # mypy takes the call for the definition of a class
        kind = make(declared.name, {name.upper(): name for name in metadata["choices"]})
        default = None if default is None else kind(default)
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[
            kind if default is not None else kind | None,
            typer.Option(*metadata["flags"], help=metadata["help"], **shown),
        ],
    )


def check_options(specification: Any) -> None:
    """Raise an error for numbers of a specification that are out of range.

    Raises
    ------
    InputError
        With the option, its bound and the number.
    """
    for each in fields(specification):
        value, least = getattr(specification, each.name), each.metadata.get("least")
        if least is not None and isinstance(value, int | float):
            option = (*each.metadata["flags"], f"--{each.name.replace('_', '-')}")[0]
            check_least(option, value, least)
    seed, m = specification.seed, specification.m
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed must be from 0 to {2**32 - 1}, not {seed}")
    if m is not None and not 1 < m < math.inf:
        raise InputError(f"-m must be above 1, not {m:g}; near 1, degrees are nearly 0 and 1")
    if not 0 < specification.participation <= 1:
        raise InputError(
            f"--participation must be above 0 and at most 1, not {specification.participation:g}"
        )


def with_choice(job: SelectK, prepare: Any, bounds: str | None, *, elbow: bool) -> SelectK:
    """Return a choice of k with its options, checked.

    Parameters
    ----------
    job : SelectK
        The choice.
    prepare : PreprocessingSpec, optional
        The preparation of the rows.
    bounds : str, optional
        LOW:HIGH for each column or for all.
    elbow : bool
        Whether to choose where the curve bends most.
    """
    if job.k_min > job.k_last:
        raise InputError(
            f"--k-min {job.k_min} is above --k-max {job.k_last}; the first k comes first"
        )
    if elbow and job.rule in ("likelihood", "vote"):
        raise refused("choice-elbow", command=True)
    if bounds is not None and prepare is not None:
        raise refused("choice-bounds", command=True)
    pick = "elbow" if elbow else "best"
    pairs = None if bounds is None else _pairs(bounds)
    return replace(job, pick=pick, bounds=pairs, prepare=prepare)


def _pairs(text: str) -> tuple[list[float], list[float]]:
    """Return LOW:HIGH pairs, one for each column or one for all, as two lists."""
    try:
        pairs = [tuple(map(float, pair.split(":"))) for pair in text.split(",")]
        lower, upper = map(list, zip(*pairs, strict=True))
    except ValueError:
        lower, upper = [math.nan], [math.nan]
    if not all(-math.inf < a <= b < math.inf for a, b in zip(lower, upper, strict=True)):
        raise InputError(
            f"--bounds '{text}' must be LOW:HIGH for all columns, or one such pair for each column "
            "with commas between, as in 0:120,-5:5"
        )
    return lower, upper


def check_least(option: str, value: float | None, least: float = 1) -> None:
    """Raise an error for a number of an option that is too small."""
    if value is not None and not value >= least:
        raise InputError(f"{option} must be at least {least}, not {value}")


READ_BY_DASK = {
    *("columns", "exclude", "weight_column", "group_column", "label_column"),
    *("protection", "plugin"),
}
"""Options of files that also apply to the partitions of a Dask cluster."""


def check_engine(
    engine: str,
    rows: FileOptions,
    smallest: int | None = None,
    *,
    append: bool = False,
    report: bool = True,
) -> str:
    """Return the address of an engine's cluster, "" for a local one.

    Raises
    ------
    InputError
        If the engine is unknown, or an option does not apply to partitions.
    """
    from fedcluster_app.cli._screen import needs

    name, _, address = engine.partition("=")
    if name != "dask":
        raise InputError(f"--engine must be dask or dask=ADDRESS, not {engine!r}")
    given = {**asdict(rows), "append": append, "min_cluster_size": smallest}
    given["no_report"] = not report
    for option, value in given.items():
        if value and option not in READ_BY_DASK:
            raise refused("dask-options", option=option.replace("_", "-"))
    needs("distributed", "dask")
    return address


# The preprocessing


@dataclass(frozen=True, slots=True)
class Scaling:
    """Options for columns of every command; a test keeps their names in agreement."""

    scale: str = parameter(
        "standard",
        "Scaling of numbers. standard: mean 0, variance 1. robust: by quartiles. minmax: by "
        "--bounds. none: as they are.",
        choices=SCALES,
    )
    missing: str | None = parameter(
        None,
        "Missing values: report an error, drop their rows, fill in the mean or median, or ignore "
        "them in distances.",
        choices=MISSING_TREATMENTS,
        show_default="mean",
    )
    categories: str | None = parameter(
        None,
        "Columns to turn into one column of 0 and 1 for each value. auto: text with few values.",
        metavar="auto,A,B|none",
        show_default="text with few values",
    )
    prepare: str | None = parameter(
        None, "A preparation of your own, after all others.", metavar="MODULE.NAME"
    )


@dataclass(frozen=True, slots=True)
class Shaping:
    """Further options for single columns, and for principal components."""

    log: str | None = parameter(None, "Columns to replace by log(1 + x).", metavar="A,B")
    bounds: str | None = parameter(
        None, "Bounds of columns; values outside are moved to them.", metavar="A=LOW:HIGH,..."
    )
    weight: str | None = parameter(
        None,
        "Weights of columns in squared distances; text counts as one column.",
        metavar="A=FACTOR,...",
        show_default="1",
    )
    pca: int | None = parameter(None, "Cluster by the first N principal components.", metavar="N")


NO_SHAPING = Shaping()


def preparation(scaling: Scaling, columns: str | None, shaping: Shaping = NO_SHAPING) -> Any:
    """Return the `PreprocessingSpec` of the options; None if rows are not prepared."""
    from fedcluster.frames.columns import column_list
    from fedcluster.preprocessing import PreprocessingSpec

    categories = scaling.categories
    from_current_folder(scaling.prepare)
    wanted = (
        scaling.missing,
        categories,
        scaling.prepare,
        *(getattr(shaping, f.name) for f in fields(shaping)),
    )
    if scaling.scale == "none" and not any(wanted):
        return None
    try:
        return PreprocessingSpec(
            scale=cast(Any, scaling.scale),  # checked there
            missing=cast(Any, scaling.missing or "mean"),
            categories=categories or "auto"
            if categories in (None, "auto", "none")
            else column_list(categories, "--categories") or (),
            log=column_list(shaping.log, "--log") or (),
            bounds=by_name("bounds", shaping.bounds),
            weights=by_name("weight", shaping.weight),
            pca=shaping.pca,
            columns=column_list(columns),
            then=scaling.prepare,
        )
    except InputError:
        raise
    except ValueError as error:
        line = str(error)
        raise InputError(f"--{line}" if line.startswith("pca") else line) from error


def fit_asked(
    words: Any,
    scaling: Scaling,
    columns: str | None,
    shaping: Shaping,
    *,
    fuzzy: bool,
) -> tuple[Fit, str | None]:
    """Return the fit that options ask for, and the columns to use.

    Under a privacy budget nothing may be fitted to the rows: columns are scaled by their bounds,
    and those with bounds are used.

    Parameters
    ----------
    words : mapping of str to object
        The options of the fit, by the names of its parameters.
    scaling, columns, shaping
        The preparation of columns.
    fuzzy : bool
        Whether clusters are fuzzy without a stated fuzzifier.

    Raises
    ------
    InputError
        If options are of different kinds of fits, or a number is out of range.
    """
    name = str(words["algorithm"])
    from_current_folder("." in name)
    if name not in algorithms() and "." not in name:
        known = ", ".join(map(repr, algorithms()))
        raise InputError(
            f"--algorithm must be one of {known} or my_module.Mine(beta=3), not {name!r}"
        )
    options = {**asdict(scaling), **asdict(shaping), "bounds": None}
    options["scale"] = None if scaling.scale == "standard" else scaling.scale
    prepared = [option for option, value in options.items() if value is not None]
    if "epsilon" in words:
        bounds = by_name("bounds", shaping.bounds) or None
        more: dict[str, Any] = {"bounds": bounds}
        if prepared:
            from fedcluster.preprocessing import PreprocessingSpec

            more["prepare"] = PreprocessingSpec()  # refused, whatever it says
        columns = columns if columns is not None or bounds is None else ",".join(bounds)
    else:
        more = {"prepare": preparation(scaling, columns, shaping)}
    if fuzzy and "m" not in words:
        more["m"] = 2.0

    fit = fit_of(spelled=partial(_spelled, words, prepared), **words, **more)
    check_options(fit)
    return fit, columns


def _spelled(words: Mapping[str, Any], prepared: Sequence[str], word: str, value: Any) -> str:
    """Return a word of a fit as an option; ``prepared`` are those of its preparation."""
    known = {"choice": "a choice of -k", "gaps": "--missing ignore", "pca": "--pca"}
    known |= {"prepare": f"--{next(iter(prepared), '')}", "m": "-m" if "m" in words else "--fuzzy"}
    if word in known:
        return known[word]
    flag = (*WORDS[word].metadata.get("flags", ()), f"--{word.replace('_', '-')}")[0]
    return f"{flag} {value}" if isinstance(value, str) else flag


def by_name(option: str, text: str | None) -> dict[str, Any]:
    """Return, by name, the pairs or numbers from A=LOW:HIGH or A=NUMBER, separated by commas.

    Examples
    --------
    >>> by_name("bounds", "age=0:120"), by_name("weight", "sex=0.5, ward=2")
    ({'age': (0.0, 120.0)}, {'sex': 0.5, 'ward': 2.0})
    """
    from fedcluster.frames.columns import put

    n, what, example = _VALUES[option]
    found: dict[str, Any] = {}
    for part in [] if text is None else text.split(","):
        name, _, values = part.rpartition("=")
        try:
            numbers = tuple(map(float, values.split(":")))
        except ValueError:
            numbers = ()
        if not name.strip() or len(numbers) != n:
            raise InputError(
                f"--{option} {text!r} must be {what}, or several of them with "
                f"commas between, as in {example}"
            )
        name, value = name.strip(), numbers if n > 1 else numbers[0]
        put(found, name, value, f"--{option}", repr(name))
    return found


_VALUES = {
    "bounds": (2, "a column with two numbers", "age=0:120,bmi=10:60"),
    "rows": (1, "a site with a number", "north=5000,south=800"),
    "weight": (1, "a column with a number", "sex=0.5,ward=2"),
}
"""Numbers that a name has in an option: how many, in words, and an example."""
