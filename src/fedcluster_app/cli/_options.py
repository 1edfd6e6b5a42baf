"""Options and arguments of the commands, made from the specifications that declare them.

A parameter of a command is an option, a key of the study file, or both.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast, get_type_hints

import typer

from fedcluster.errors import InputError
from fedcluster.options.choices import ADJUSTS, ALGORITHMS, FUZZY_ALGORITHMS, INITS, SCALES
from fedcluster.options.choices import MISSING as MISSING_TREATMENTS
from fedcluster.options.refusals import refused
from fedcluster.recipes.specifications import SEED, Fit, SelectK, declared, fit_of, parameter

OWN = ("help", "flags", "choices", "least")
"""Options of `parameter` that are not typer's."""
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (bool, int, float, str, Path)}
"""Types of fields that are options, by name."""


OPTIONS = frozenset(
    [
        *("n_clusters", "algorithm", "fuzzy", "model", "metric", "seed", "profile", "previous"),
        *("stability", "min_cluster_size", "k_min", "k_max", "scale", "missing", "adjust"),
        *("categories", "columns", "exclude", "site_column", "group_column"),
        *("id_column", "label_column", "append", "out", "quorum", "permit", "secure"),
    ]
)
"""Keys of a study file that are options of the command line, too."""
FREE = ("said", "context")
"""Parameters of commands that are neither."""
FITS_ALONE = ("adjust",)
"""Options of fits that are keys of other commands."""
PLAIN = {name: name for name in ("columns", "engine", "out")}
PLAIN |= {"report": "report", "label_column": "label_column", "fuzzy": "fit.fuzzy"}
PLAIN |= {"min_cluster_size": "limits.min_cluster_size", "own_algorithm": "fit.algorithm"}
PLAIN |= {"metrics": "evaluate.metrics", "gap_bounds": "select_k.bounds", "_plugins": "plugins"}
"""Keys of parameters of commands that belong to no specification."""


def key(default: Any, help: str = "") -> Any:
    """Declare a field of a specification that is a key of a study file, and no option."""
    return field(default_factory=lambda: default, metadata={"help": help, "flags": ()})


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
KnownHash = Annotated[
    str,
    option("HASH", "Hash of a line that somebody else noted, or its first 16 digits.", "--head"),
]
Seed = Annotated[int, option("N", SEED, show_default=True)]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the files of an earlier run.")
]
Fuzzy = Annotated[
    bool, typer.Option("--fuzzy", help="Fuzzy c-means: rows get memberships in all clusters.")
]
Set = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "Any key of a study file, as in fit.tol=0.01 or codes.sex.female=F; may be repeated.",
        "--set",
    ),
]


def from_current_folder(value: Any) -> Any:
    """Return the value of an option, which may name modules in the current folder."""
    if value:
        from fedcluster_app.tables.plugins import import_from_current_folder

        import_from_current_folder()
    return value


def load_named(names: Any) -> Any:
    """Load the plugins that an option names, including those in the current folder."""
    if from_current_folder(names):
        from fedcluster_app.tables.plugins import load_plugins

        load_plugins(names or ())
    return names


Plugin = Annotated[
    list[str] | None,
    option(
        "MODULE",
        "Load formats, steps and preparations of your own from a module; may be repeated.",
        "--plugin",
        callback=load_named,
        is_eager=True,
    ),
]


def own(algorithm: str | None) -> str | None:
    """Return the name of a user's own algorithm; None for those of the package."""
    return from_current_folder(algorithm) if "." in (algorithm or "") else None


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
Outcomes = Annotated[
    list[str] | None,
    option("NAME", "Column to compare the clusters by; may be repeated.", "--outcome"),
]
TimeColumn = Annotated[
    str | None,
    option(
        "NAME",
        "Column with the time of outcomes that are 1, and until which others were 0.",
        "--time",
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


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """Keys for the values of files, both of rows to cluster and of new rows."""

    section: ClassVar[str] = ""

    sites: Mapping[str, Any] = key({})
    source: Mapping[str, Any] = key({})
    missing_values: Sequence[int | float | str] = key(())
    codes: Mapping[str, Mapping[str, str]] = key({})
    rename: Mapping[str, str] = key({})
    plugins: Sequence[str] = key(())


@dataclass(frozen=True, slots=True)
class FileOptions(ValueOptions):
    """Options for files of rows, and for the columns, which not every command takes."""

    columns: str | Sequence[str] | None = None
    exclude: str | Sequence[str] | None = None
    lenient: bool = False
    dates: Mapping[str, str] = field(default_factory=dict)
    site_column: str | None = parameter(
        None, "Column with the site of each row, if one file holds all sites.", metavar="NAME"
    )
    weight_column: str | None = key(None)
    group_column: str | None = parameter(
        None, "Column with the person of each row; limits then count persons.", metavar="NAME"
    )
    protection: str | None = key(None)
    label_column: str | None = None
    id_column: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnOptions(FileOptions):
    """Options for files of rows and for the choice of their columns."""

    columns: str | Sequence[str] | None = parameter(
        None, "Columns to use; by default all.", metavar="A,B,C"
    )
    exclude: str | Sequence[str] | None = parameter(None, "Columns to leave out.", metavar="A,B,C")
    lenient: bool = key(
        False, "Leave out columns of which a cell cannot be read, instead of stopping."
    )
    dates: Mapping[str, str] = key({})


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Options for keys and for tables that are written with the clusters of rows."""

    section: ClassVar[str] = ""

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

    section: ClassVar[None] = None

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


def key_of(kind: type[Any], name: str) -> tuple[str, ...]:
    """Return the key of a field of a specification in a study file; () if there is none."""
    section = getattr(kind, "section", getattr(kind, "kind", "run").replace("-", "_"))
    if section is None:
        return ()
    return tuple(each for each in (section, name) if each)


def named(name: str, section: str = "") -> str:
    """Return a parameter as users say it: the option, or the key of a study file.

    Examples
    --------
    >>> named("k_min"), named("n_init", "fit")
    ('--k-min', 'fit.n_init')
    """
    is_key = name not in OPTIONS
    option = {"previous": "continue"}.get(name, name).replace("_", "-")
    return ".".join(filter(None, [section, name])) if is_key else f"--{option}"


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
            key = ".".join(key_of(type(specification), each.name))
            option = next(iter(each.metadata["flags"]), named(each.name))
            check_least(option if each.name in OPTIONS else key, value, least)
    seed, m = specification.seed, specification.m
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed must be from 0 to {2**32 - 1}, not {seed}")
    if m is not None and not 1 < m < math.inf:
        key = key_of(type(specification), "m")[0]
        raise InputError(f"{key}.m must be above 1, not {m:g}; near 1, degrees are nearly 0 and 1")
    if not 0 < specification.participation <= 1:
        raise InputError(
            f"fit.participation must be above 0 and at most 1, not {specification.participation:g}"
        )


def with_choice(job: SelectK, prepare: Any, bounds: Any) -> SelectK:
    """Return a choice of k with its options, checked.

    Parameters
    ----------
    job : SelectK
        The choice.
    prepare : PreprocessingSpec, optional
        The preparation of the rows.
    bounds : sequence of (float, float), optional
        Bounds of each column, or one pair for all.
    """
    if job.k_min > job.k_last:
        raise InputError(
            f"--k-min {job.k_min} is above --k-max {job.k_last}; the first k comes first"
        )
    if job.pick == "elbow" and job.rule in ("likelihood", "vote"):
        raise refused("choice-elbow", command=True)
    if bounds is not None and prepare is not None:
        raise refused("choice-bounds", command=True)
    if bounds is not None and not all(-math.inf < low <= high < math.inf for low, high in bounds):
        raise InputError("select_k.bounds must be pairs LOW, HIGH, as in [[0, 120], [-5, 5]]")
    pairs = None if bounds is None else tuple(map(list, zip(*bounds, strict=True)))
    return replace(job, bounds=cast(Any, pairs), prepare=prepare)


def check_least(option: str, value: float | None, least: float = 1) -> None:
    """Raise an error for a number of an option that is too small."""
    if value is not None and not value >= least:
        raise InputError(f"{option} must be at least {least}, not {value}")


READ_BY_DASK = {
    *("columns", "exclude", "weight_column", "group_column", "label_column"),
    *("protection", "plugins"),
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
        raise InputError(f"engine must be dask or dask=ADDRESS, not {engine!r}")
    given = {**asdict(rows), "append": append, "min_cluster_size": smallest}
    given["sites"] = [at for at, own in rows.sites.items() if own.keys() - {"path"}]
    given["report=false"] = not report
    for name, value in given.items():
        if value and name not in READ_BY_DASK:
            raise refused("dask-options", option=named(name))
    needs("distributed", "dask")
    return address


def check_like_fit(unlike: Sequence[str]) -> None:
    """Raise an error for new rows that are unlike those of the fit, given the lines about it."""
    if unlike:
        more = f", and {len(unlike) - 1} more such lines" if unlike[1:] else ""
        raise InputError(f"{unlike[0]}{more}; by --strict, nothing was written")


# The preprocessing


@dataclass(frozen=True, slots=True)
class Scaling:
    """Options and keys for columns; a test keeps their names in agreement."""

    section: ClassVar[str] = "prepare"

    scale: str = parameter(
        "standard",
        "Scaling of numbers. standard: mean 0, variance 1. robust: by quartiles. minmax: by "
        "prepare.bounds. none: as they are.",
        choices=SCALES,
    )
    missing: str | None = parameter(
        None,
        "Missing values: report an error, drop their rows, fill in the mean or median, or ignore "
        "them in distances.",
        choices=MISSING_TREATMENTS,
        show_default="mean",
    )
    categories: str | Sequence[str] | None = parameter(
        None,
        "Columns to turn into one column of 0 and 1 for each value. auto: text with few values.",
        metavar="auto,A,B|none",
        show_default="text with few values",
    )
    adjust: str | None = parameter(
        None,
        "site: subtract from numbers the offset of each site, if sites differ where their patients "
        "do not; site-scale: divide them by its gain before.",
        choices=ADJUSTS,
    )
    then: str | None = key(None, "A preparation of your own, MODULE.NAME, after all others.")
    log: Sequence[str] = key((), "Columns to replace by log(1 + x).")
    bounds: Mapping[str, tuple[float, float]] = key(
        {}, "Bounds of columns, age = [0, 120]; values outside are moved to them."
    )
    weights: Mapping[str, float] = key(
        {}, "Weights of columns in squared distances; text counts as one column."
    )
    pca: int | None = key(None, "Cluster by the first N principal components.")


def preparation(scaling: Scaling, columns: str | Sequence[str] | None) -> Any:
    """Return the `PreprocessingSpec` of the options; None if rows are not prepared."""
    from fedcluster.frames.columns import column_list
    from fedcluster.preprocessing import PreprocessingSpec

    categories = tuple(column_list(scaling.categories, "--categories") or ("auto",))
    from_current_folder(scaling.then)
    if scaling.scale == "none" and not any(
        value for name, value in asdict(scaling).items() if name != "scale"
    ):
        return None
    try:
        return PreprocessingSpec(
            scale=cast(Any, scaling.scale),  # the class checks the value
            missing=cast(Any, scaling.missing or "mean"),
            categories=cast(
                Any, categories[0] if categories in (("auto",), ("none",)) else categories
            ),
            log=tuple(scaling.log),
            bounds=scaling.bounds,
            weights=scaling.weights,
            pca=scaling.pca,
            columns=column_list(columns),
            then=scaling.then,
            adjust=cast(Any, scaling.adjust or "none"),
        )
    except InputError:
        raise
    except ValueError as error:
        line = str(error)
        raise InputError(f"prepare.{line}" if line.startswith("pca") else line) from error


def fit_asked(
    words: Any,
    scaling: Scaling,
    columns: str | Sequence[str] | None,
    *,
    fuzzy: bool,
) -> tuple[Fit, str | Sequence[str] | None]:
    """Return the fit that options and keys ask for, and the columns to use.

    Under a privacy budget nothing may be fitted to the rows: columns are scaled by their bounds,
    and those with bounds are used.

    Parameters
    ----------
    words : mapping of str to object
        The parameters of a fit that are said.
    scaling, columns
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
    words = _with_files(words)
    options = asdict(replace(scaling, bounds={}))
    options["scale"] = None if scaling.scale == "standard" else scaling.scale
    prepared = [option for option, value in options.items() if value]
    if "epsilon" not in words:
        more: dict[str, Any] = {"prepare": preparation(scaling, columns)}
    else:
        bounds = scaling.bounds or None
        more = {"bounds": bounds}
        columns = list(bounds) if columns is None and bounds else columns
        if prepared:
            from fedcluster.preprocessing import PreprocessingSpec

            more["prepare"] = PreprocessingSpec()  # any value leads to the refusal
    if fuzzy and "m" not in words:
        more["m"] = 2.0
    fit = fit_of(spelled=partial(_spelled, words, prepared), **words, **more)
    check_options(fit)
    return fit, columns


def _with_files(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of a fit with what is in the files that they name."""
    read = dict(words)
    if file := words.get("previous"):
        from fedcluster.model import Model

        read = {"n_clusters": Model.load(file).n_clusters, **words}
        read["previous"] = str(Path(file).absolute())
    if (file := words.get("init", "auto")) not in INITS:
        read["init"], read["init_columns"] = centers_in(Path(file))
    return read


def centers_in(file: Path) -> tuple[Any, tuple[str, ...]]:
    """Return centres (k, d) in the units of columns, and these: of a CSV file, or of a model.

    Raises
    ------
    InputError
        If the file does not hold them.
    """
    import csv

    import numpy as np

    from fedcluster.errors import reason

    if file.suffix != ".csv":
        if not file.exists():
            raise InputError(f"fit.init must be one of {', '.join(INITS)}, or a file, not '{file}'")
        from fedcluster.model import Model

        model = Model.load(file)
        units = model.centers_in_units
        return np.array([*units.values()]).T[model.there], tuple(units)
    try:
        names, *lines = csv.reader(file.read_text("utf-8-sig").splitlines())
        if not lines or any(len(line) != len(names) for line in lines):
            raise ValueError("lines of other lengths")
        centers = np.array(lines, dtype=np.float64)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise InputError(
            f"{file} holds no centres: the names of columns, then a line of numbers for each "
            f"cluster ({error})"
        ) from error
    return centers, tuple(name.strip() for name in names)


def _spelled(words: Mapping[str, Any], prepared: Sequence[str], word: str, value: Any) -> str:
    """Return a word of a fit as it is said; ``prepared`` are those of its preparation."""
    known = {"choice": "a choice of -k", "gaps": "--missing ignore", "pca": "prepare.pca"}
    known |= {"prepare": named(next(iter(prepared), ""), "prepare")}
    known |= {} if "m" in words else {"m": "--fuzzy"}
    said = known.get(word) or named(word, "fit")
    return f"{said} {value}" if isinstance(value, str) and word not in known else said


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace specifications among the parameters of a command by options and keys.

    A parameter whose type is a dataclass stands for its fields that `parameter` or `key` declares;
    the command receives the specification, or of a fit the words that say its kind. A field is an
    option of the command, a key of a study file, or both. What the command line says counts before
    the file. A parameter ``said`` receives what both say.
    """
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    kinds = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}
    fields = {name: declared(kind) for name, kind in kinds.items()}
    keys = {f.name: key_of(kinds[name], f.name) for name, own in fields.items() for f in own}
    keys |= {name: tuple(PLAIN[name].split(".")) for name in signature.parameters if name in PLAIN}
    is_fit = command.__name__ == "fit"  # only fit writes where a study file says
    keys = {name: each for name, each in keys.items() if each and (is_fit or name != "out")}
    options = {
        each.name: each
        for name, own in signature.parameters.items()
        for each in (
            map(_option, fields[name])
            if name in kinds
            else [own.replace(annotation=hints[name], kind=keyword)]
        )
        if each.name not in (*FREE, *(() if is_fit else FITS_ALONE)) and is_option(each.name, keys)
    }
    if not OPTIONS.issuperset(keys):
        options["settings"] = inspect.Parameter("settings", keyword, default=None, annotation=Set)

    @wraps(command)
    def call(context: typer.Context, **values: Any) -> Any:
        said = _Said.of(context, keys, values)
        said.fill(values, options)
        load_named(values.get("plugins", values.pop("_plugins", None)))
        for name, kind in kinds.items():
            own = {f: values.pop(f.name, None) for f in fields[name]}
            said.check_given(own)
            plain = {f.name: v.value if isinstance(v, StrEnum) else v for f, v in own.items()}
            values[name] = (dict if kind is Fit else kind)(
                **{f: v for f, v in plain.items() if v is not None}
            )
        more = {"context": context, "said": said.content}
        return command(**values, **{k: v for k, v in more.items() if k in signature.parameters})

    options["context"] = inspect.Parameter("context", keyword, annotation=typer.Context)
    every = sorted(options.values(), key=lambda each: each.default is not each.empty)
    call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in every}
    return call


def is_option(name: str, keys: Mapping[str, Any]) -> bool:
    """Return whether a parameter of a command is an option or argument, not only a key."""
    return name in OPTIONS or name not in keys


ROLES = ("label_column", "id_column")
"""Keys of columns that are never clustered by, though a command has no other use for them."""


class _Said:
    """What a study file and the command line say.

    Parameters
    ----------
    context : typer.Context
        The call.
    keys : mapping of str to tuple of str
        The keys of the command's parameters.
    content, settings : dict
        What the file says, with what ``--set`` says, and the latter alone.
    """

    def __init__(
        self,
        context: typer.Context,
        keys: Mapping[str, tuple[str, ...]],
        content: dict[str, Any],
        settings: dict[str, Any],
    ) -> None:
        self.context, self.keys = context, keys
        self.content, self.settings = content, settings

    @classmethod
    def of(
        cls, context: typer.Context, keys: Mapping[str, tuple[str, ...]], values: dict[str, Any]
    ) -> _Said:
        """Read the study file among the files of a call, which are replaced by those of its sites.

        Raises
        ------
        InputError
            If a key is unknown, or this command has no use for one that ``--set`` says.
        """
        files, settings = values.get("files") or [], values.pop("settings", None) or []
        if not (settings or any(file.lower().endswith(".toml") for file in files)):
            return cls(context, keys, {}, {})
        from fedcluster_app.cli import _study as study

        content, others = study.study_in(files) if "sites" in keys else ({}, files)
        said = study.settings_in(settings)
        for path, _ in study.leaves(said):
            if not any(path[: len(each)] == each for each in keys.values()):
                raise InputError(
                    f"--set {'.'.join(path)}: {context.command_path} has no use for this key"
                )
        is_read = content.get("sites") and not others
        roles = [content[role] for role in ROLES if role in content and role not in keys]
        if roles and "exclude" in keys and "columns" not in content:
            content["exclude"] = list(dict.fromkeys([*content.get("exclude", ()), *roles]))
        content = study.nested({**dict(study.leaves(content)), **dict(study.leaves(said))})
        if "files" in values:
            sites = content.get("sites", {}) if is_read else {}
            values["files"] = others + study.arguments_of(sites, named="engine" not in content)
        return cls(context, keys, content, said)

    def fill(self, values: dict[str, Any], options: Collection[str]) -> None:
        """Put values of keys into those of options, unless these are typed."""
        for name in self.keys:
            source = self.context.get_parameter_source(name) if name in options else None
            if source is not None and source.name == "COMMANDLINE":
                self.add(name, values[name])
            elif (found := self.found(name)) is not None:
                values[name] = Path(found) if name == "out" else found

    def found(self, name: str, settings: bool = False) -> Any:
        """Return the value of a parameter's key, None if nothing says it."""
        found: Any = self.settings if settings else self.content
        for part in self.keys[name]:
            found = found.get(part) if isinstance(found, dict) else None
        if name == "n_clusters" and isinstance(found, str):
            return number_of_clusters(found)
        return tuple(found) or None if isinstance(found, list) else found

    def add(self, name: str, value: Any) -> None:
        """Note the value of an option.

        Raises
        ------
        InputError
            If ``--set`` says another one.
        """
        from fedcluster.frames.columns import column_list

        if name in ("columns", "exclude", "categories"):
            value = column_list(value, f"--{name}")
        plain = value.value if isinstance(value, StrEnum) else value
        plain = str(plain) if isinstance(plain, Path) else plain
        other = self.found(name, settings=True)
        if other is not None and other != (tuple(plain) if isinstance(plain, list) else plain):
            raise InputError(
                f"{named(name)} and --set {'.'.join(self.keys[name])} say different things; give "
                "one "
                "of them"
            )
        table = self.content
        *tables, last = self.keys[name]
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = plain

    def check_given(self, own: Mapping[Field[Any], Any]) -> None:
        """Raise an error if a parameter without a default has no value.

        The number of clusters may be that of an earlier fit.
        """
        continues = any(each.name == "previous" and value for each, value in own.items())
        for each, value in own.items():
            needed = each.default is MISSING and each.default_factory is MISSING
            if needed and value is None and not (continues and each.name == "n_clusters"):
                option = " / ".join(map(repr, each.metadata["flags"]))
                path = self.context.command_path
                raise InputError(f"Missing option {option}; see {path} --help")


def _option(declared: Field[Any]) -> inspect.Parameter:
    """Return the option of a field of a specification."""
    metadata = declared.metadata
    kind: Any = KINDS.get(str(declared.type).split(" | ")[0], str)
    default: Any = declared.default if isinstance(declared.default, kind) else None
    default = None if declared.default is MISSING else default
    shown = {key: value for key, value in metadata.items() if key not in OWN}
    if declared.name == "n_clusters":
        shown["parser"], kind = number_of_clusters, Any
    if declared.name == "algorithm":
        shown["autocompletion"] = algorithms
    if "choices" in metadata:
        make: Any = StrEnum  # mypy would treat the call as a class definition
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
