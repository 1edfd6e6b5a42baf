"""The wire protocol: messages between coordinator and sites as bytes, and back.

Both ends must know all words of a message. New versions may use new words in a question; an older
site refuses what it does not know, and the refusal names both versions, because an ignored word
might change the question.

Messages carry tasks, answers and descriptions.

A message is one line of JSON, the header, followed by the numbers of all arrays, float64 and
little-endian, one array after the other. There is no pickle: a step travels as its name and its
fields, and a site creates only steps that it knows by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, is_dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from fedcluster import __version__
from fedcluster.core import (
    SCALARS,
    Column,
    Floats,
    Limit,
    PlannedStep,
    RowTransform,
    SiteInfo,
    State,
    Step,
    Summary,
    Task,
    check_step,
    first_alike,
)
from fedcluster.errors import PolicyError
from fedcluster.errors import WireError as WireError
from fedcluster.frames.columns import KINDS, MOST_LEVELS
from fedcluster.options.choices import OWN_STEPS, imported
from fedcluster.options.choices import STEPS as STEPS
from fedcluster.texts import LONGEST, first_not_plain, printable

PROTOCOL = 1
"""The version of the protocol, which must be the same at both ends."""

QUESTION = frozenset(
    {"about", "cancel", "columns", "described", "exchange", "labels", "model", "permit"}
    | {"protocol", "raw", "run", "sums", "tasks"}
)
TASK = frozenset(
    {"converged", "fields", "inertia", "memory", "noise", "preprocessing", "resampled"}
    | {"round", "seed", "step"}
)
"""Words that a question and its tasks may contain; others are refused, see ``about``."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The largest sizes of what is read from a message."""

    longest_about: int = 100  # characters of a text in the metadata
    largest: int = 100_000_000  # bytes of a message
    most_lists: int = 1_000_000
    """Lists and objects in a header, since each takes many times its bytes."""
    largest_header: int = 16_000_000  # bytes of a header
    most_arrays: int = 100_000  # number of arrays of a message
    most_limits: int = 20  # limits of a site, and parameters of each
    longest_limit: int = 200  # characters of a limit in text form
    most_dimensions: int = 3  # dimensions of an array


SIZES = Sizes()


class UnknownError(WireError):
    """A word that is unknown here, but may be known to another version of fedcluster."""


def about(**more: Any) -> dict[str, Any]:
    """Return the metadata of a message, which another version may ignore."""
    return {"about": {"fedcluster": __version__, **more}}


def about_of(header: Mapping[str, Any], key: str) -> str:
    """Return a text from the metadata of a message, "" if it is missing."""
    metadata = header.get("about")
    value = metadata.get(key) if isinstance(metadata, Mapping) else None
    return value[: SIZES.longest_about] if isinstance(value, str) else ""


def log_key(site: str) -> str:
    """Return the key under which the metadata of a message names a line of a site's log."""
    return sha256(site.encode()).hexdigest()[:16]


def known_line(header: Mapping[str, Any], site: str) -> str:
    """Return the hash of a line that the coordinator knows of a site's log, "" if it knows none."""
    metadata = header.get("about")
    logs = metadata.get("logs") if isinstance(metadata, Mapping) else None
    value = logs.get(log_key(site)) if isinstance(logs, Mapping) else None
    return value[: SIZES.longest_about] if isinstance(value, str) else ""


def planned_of(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the planned steps of a run from the metadata, by name and possibly parameters.

    Raises
    ------
    WireError
        If the steps are not understood.
    """
    metadata = header.get("about")
    planned = metadata.get("steps", []) if isinstance(metadata, Mapping) else []
    if not isinstance(planned, list) or not all(isinstance(each, dict) for each in planned):
        raise WireError("the steps that are planned are not a list of names with parameters")
    return planned


def versions(header: Mapping[str, Any], mine: str, theirs: str) -> str:
    """Return the versions of both ends, as the end of a message, "" if they are the same.

    Examples
    --------
    >>> versions({"about": {"fedcluster": "9.9"}}, "this site", "the coordinator")
    '; this site has fedcluster ..., the coordinator 9.9: install the same at both'
    """
    other = about_of(header, "fedcluster") or "an unknown one"
    if other == __version__:
        return ""
    return f"; {mine} has fedcluster {__version__}, {theirs} {other}: install the same at both"


def check_known(words: Iterable[Any], known: frozenset[str], what: str) -> None:
    """Raise an error for words that this version does not know.

    Raises
    ------
    UnknownError
        With the first unknown word.
    """
    if unknown := sorted({str(word) for word in words} - known):
        raise UnknownError(f"{what} says {unknown[0][:40]!r}, which is not known here")


PARTS = ("sums", "weights")
"""Arrays of an answer."""

Header = Mapping[str, Any]
Steps = Mapping[str, type[Any] | str]
"""Steps by name; one that is given by its dotted name is imported when a message asks for it."""
Arrays = Mapping[str, Floats]
Preprocessors = Callable[[Mapping[str, Any]], RowTransform]
"""Function that creates a preprocessor from its plain form; may raise ValueError or the like."""


def step_of(step: type[Any] | str) -> type[Any]:
    """Return a step that is given by itself or by its dotted name."""
    return imported(step) if isinstance(step, str) else step


def steps_by_name(more: Iterable[str] = ()) -> Steps:
    """Return the steps that a site knows: those of the package, of plugins, and others.

    Parameters
    ----------
    more : iterable of str
        Paths of other steps, such as ``"my_package.my_module.MyStep"``, which are imported.

    Raises
    ------
    WireError
        If one of them is not a step, or has the name of another step.
    """
    known: dict[str, type[Any] | str] = dict(STEPS)
    for name, step in OWN_STEPS.items():
        if known.setdefault(name, step) is not step:
            raise WireError(f"a step of a plugin has the name of another step, {name!r}: rename it")
    for path in more:
        name = path.rpartition(".")[2]
        try:
            step = imported(path)
        except (ImportError, AttributeError, ValueError) as error:
            raise WireError(f"step {path!r} cannot be imported: {error}") from error
        if not (is_dataclass(step) and isinstance(step, type) and hasattr(step, "client_step")):
            raise WireError(f"{path!r} is not a step: a frozen dataclass with a client_step")
        try:
            check_step(step)
        except TypeError as error:
            raise WireError(f"{path!r} is not a step: {error}") from error
        if step_of(known.setdefault(name, step)) is not step:
            raise WireError(f"step {path!r} has the name of another step, {name!r}: rename it")
    return known


def pack(header: Header, arrays: Arrays) -> bytes:
    """Write a header of JSON-compatible values and named arrays as one message.

    Examples
    --------
    >>> message = pack({"protocol": 1}, {"centers": np.array([[0.5], [2.0]])})
    >>> header, arrays = unpack(message)
    >>> header["protocol"], arrays["centers"].tolist()
    (1, [[0.5], [2.0]])
    """
    for name, array in arrays.items():
        if array.dtype != np.float64 or array.ndim > SIZES.most_dimensions:
            raise WireError(
                f"{name} is {array.dtype} of shape {array.shape}; float64 of at most "
                f"{SIZES.most_dimensions} dimensions can be sent"
            )
    shapes = [[name, *array.shape] for name, array in arrays.items()]
    line = json.dumps({**header, "arrays": shapes}, separators=(",", ":"))
    numbers = (array.astype("<f8", order="C").tobytes() for array in arrays.values())
    return b"".join([line.encode(), b"\n", *numbers])


def unpack(
    message: bytes, largest: int = SIZES.largest, longest: int = LONGEST
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return the header and the arrays of a message, with limits on its size and its texts.

    Raises
    ------
    WireError
        If the message is too large, a text is too long, or `pack` did not write it.
    """
    if len(message) > largest:
        raise WireError(too_large(message, largest))
    end = message.find(b"\n", 0, SIZES.largest_header)
    line = message[: max(end, 0)]
    if line.count(b"[") + line.count(b"{") > SIZES.most_lists:
        raise WireError(f"the header of the message has more than {SIZES.most_lists:,} lists")
    try:
        header = json.loads(line)
        shapes = {str(name): _shape(shape) for name, *shape in header.pop("arrays")}
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise WireError("the message has no header that can be read") from error
    if len(shapes) > SIZES.most_arrays:
        raise WireError(f"{len(shapes):,} arrays; at most {SIZES.most_arrays:,} are read")
    if (text := first_not_plain(header, longest)) is not None:
        raise WireError(f"a text is too long or holds control characters: {printable(text)[:60]!r}")
    numbers = memoryview(message)[end + 1 :]
    sizes = [math.prod(shape) for shape in shapes.values()]
    if 8 * sum(sizes) != len(numbers):
        raise WireError(f"{8 * sum(sizes):,} bytes of numbers announced, {len(numbers):,} received")
    parts = np.split(np.frombuffer(numbers, "<f8"), np.cumsum(sizes)[:-1]) if shapes else []
    return header, {
        name: part.reshape(shape).astype(np.float64)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def too_large(message: bytes, largest: int) -> str:
    """Return the reason why a message that is too large is not read."""
    return f"the message has {len(message):,} bytes; at most {largest:,} are read"


def _shape(shape: Sequence[Any]) -> tuple[int, ...]:
    if len(shape) > SIZES.most_dimensions or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{shape} is no shape")
    return tuple(shape)


def digest(message: bytes) -> str:
    """Return the hash of a message, as 16 hexadecimal digits."""
    return sha256(message).hexdigest()[:16]


def content_digest(header: Header, arrays: Arrays) -> str:
    """Return the hash of a question's content, equal for all sites that are asked the same.

    It depends neither on the number of the exchange nor on data for the masks of one site.
    """
    content = {key: header[key] for key in header.keys() - {"exchange", "sums"}}
    return sha256(pack(dict(sorted(content.items())), arrays)).hexdigest()


def write_tasks(tasks: Sequence[Task]) -> tuple[list[Header], dict[str, Floats]]:
    """Return the headers of tasks, one for each, and the arrays of their states.

    A preprocessor travels once: later tasks with the same one refer to the first by number.

    Raises
    ------
    WireError
        If a step has a field that is not a scalar.
    """
    headers: list[Header] = []
    arrays: dict[str, Floats] = {}
    for i, (task, first) in enumerate(zip(tasks, first_alike(tasks), strict=True)):
        state, header = task.state, _step_header(task.step)
        if task.preprocessor is not None:
            header["preprocessing"] = task.preprocessor.plain() if first == i else first
        header |= {"seed": task.seed, "round": state.round, "inertia": state.inertia}
        header |= {"converged": bool(state.converged), "memory": list(state.memory)}
        if task.resampled is not None:
            header["resampled"] = task.resampled
        if task.noise is not None:
            header["noise"] = float(task.noise)
        headers.append(header)
        arrays |= {f"{i}.centers": state.centers, f"{i}.weights": state.weights}
        arrays |= {f"{i}.memory.{name}": array for name, array in state.memory.items()}
    return headers, arrays


def write_steps(steps: Iterable[PlannedStep]) -> list[Header]:
    """Return planned steps as JSON-compatible values; for a class, only its name.

    Raises
    ------
    WireError
        If a step has a field that is not a scalar.
    """
    return [
        {"step": step.__name__} if isinstance(step, type) else _step_header(step) for step in steps
    ]


def read_steps(planned: Iterable[Header], steps: Steps = STEPS) -> list[PlannedStep]:
    """Read the steps that `write_steps` wrote.

    Raises
    ------
    WireError
        If a step is not among ``steps``, or does not have these parameters.
    """
    return [
        _read_step(each.get("step"), each["fields"], steps)
        if "fields" in each
        else _known_step(each.get("step"), steps)
        for each in planned
    ]


def _step_header(step: Step) -> dict[str, Any]:
    """Return the name and the hyper-parameters of a step."""
    if not is_dataclass(step):
        raise WireError(f"{type(step).__name__} cannot be sent: a step must be a frozen dataclass")
    values = {field.name: getattr(step, field.name) for field in fields(step)}
    for name, value in values.items():
        if not isinstance(value, SCALARS):
            raise WireError(
                f"{type(step).__name__}({name}={value!r}) cannot be sent: {name} must be a number, "
                "a text, a truth value or None"
            )
    return {"step": type(step).__name__, "fields": values}


def read_tasks(
    headers: Any,
    arrays: Arrays,
    steps: Steps = STEPS,
    preprocessors: Preprocessors | None = None,
) -> list[Task]:
    """Read the tasks that `write_tasks` wrote; tasks with one preprocessor share it.

    Raises
    ------
    WireError
        If a step is not among ``steps``, if rows must be prepared but there are no
        ``preprocessors``, or if a task is not understood.
    """
    if not isinstance(headers, list | tuple):
        raise WireError("the tasks are not a list")
    tasks: list[Task] = []
    for i, header in enumerate(headers):
        try:
            check_known(header, TASK, f"task {i}")
            state = _read_state(i, header, arrays)
            (name, values), seed = (header["step"], header["fields"]), _whole(header["seed"])
            drawn = _whole(header["resampled"]) if "resampled" in header else None
            noise = _positive(header["noise"]) if "noise" in header else None
        except UnknownError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise WireError(f"task {i} is not whole") from error
        task = Task(_read_step(name, values, steps), state, seed)
        transform = _read_preprocessor(header.get("preprocessing"), tasks, preprocessors)
        tasks.append(replace(task, preprocessor=transform, resampled=drawn, noise=noise))
    return tasks


def _read_state(i: int, header: Header, arrays: Arrays) -> State:
    return State(
        arrays[f"{i}.centers"],
        arrays[f"{i}.weights"],
        round=_whole(header["round"]),
        inertia=float(header["inertia"]),
        converged=bool(header["converged"]),
        memory={str(key): arrays[f"{i}.memory.{key}"] for key in header["memory"]},
    )


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise TypeError("not a whole number")
    return number


def _positive(number: Any) -> float:
    if type(number) is not float or not 0 < number < math.inf:
        raise TypeError("not a positive number")
    return number


def _read_preprocessor(
    plain: Any, before: Sequence[Task], preprocessors: Preprocessors | None
) -> RowTransform | None:
    if plain is None:
        return None
    if type(plain) is int and 0 <= plain < len(before):
        return before[plain].preprocessor
    if preprocessors is None:
        raise WireError("this site prepares no rows")
    try:
        return preprocessors(plain)
    except PolicyError:  # the message names a step that is not loaded in this process
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise WireError(f"the preparation of task {len(before)} is not understood") from error


def _known_step(name: Any, steps: Steps) -> type[Any]:
    if not isinstance(name, str) or name not in steps:
        raise UnknownError(
            f"step {name!r} is not among the steps that this site knows; a step of your own must "
            "be named in steps under [federation] in its site.toml"
        )
    return step_of(steps[name])


def _read_step(name: Any, values: Any, steps: Steps) -> Step:
    kind = _known_step(name, steps)
    if not isinstance(values, Mapping) or not all(isinstance(v, SCALARS) for v in values.values()):
        raise WireError(f"the fields of step {name!r} are not names with scalars")
    try:
        step: Step = kind(**values)
    except (TypeError, ValueError) as error:
        raise UnknownError(f"step {name!r} does not have these fields: {sorted(values)}") from error
    return step


def write_summaries(summaries: Sequence[Summary]) -> dict[str, Floats]:
    """Return answers as arrays, without the parts that may not leave a site."""
    arrays: dict[str, Floats] = {}
    for i, summary in enumerate(summaries):
        arrays |= {f"{i}.sums": summary.sums, f"{i}.weights": summary.weights}
    return arrays


def read_summaries(arrays: Arrays) -> list[Summary]:
    """Read the answers that `write_summaries` wrote.

    Raises
    ------
    WireError
        If sums or weights are missing or do not match.
    """
    n = sum(name.endswith(".sums") for name in arrays)
    if unknown := set(arrays) - {f"{i}.{part}" for i in range(n) for part in PARTS}:
        raise WireError(f"the answers are not whole: {min(unknown)!r} belongs to none")
    try:
        return [Summary(arrays[f"{i}.sums"], arrays[f"{i}.weights"]) for i in range(n)]
    except (LookupError, ValueError) as error:
        raise WireError(f"the answers are not whole: {error}") from error


LEARNT = (
    "name",
    "answered",
    "n_rows",
    "weight",
    "n_columns",
    "total_rows",
    "sends",
    "is_partition",
)
"""Facts of a site that no reply states; most follow from its answers."""

ASKED = {"described": "columns", "labels": "labels"}
"""Facts that a site states only on request, by their keys in a question and its reply."""

STATED = {
    each.name: each.default
    for each in fields(SiteInfo)
    if each.name not in {*LEARNT, *ASKED.values()}
}
"""Facts that every reply states: limits, and scalars of the type of their defaults."""

SAID = {"streams": "whether its rows come in chunks", "labels": "whether it has labels"}
"""What a site fails to say if a fact is missing, unless the fact's own name says it."""


def write_site(site: SiteInfo) -> dict[str, Any]:
    """Return the metadata of a site as JSON-compatible values, without its number of rows."""
    return {
        **{name: getattr(site, name) for name in STATED},
        "limits": [limit.plain() for limit in site.limits],
        "described": [astuple(column) for column in site.columns],
        "labels": site.labels,
    }


def read_site(
    before: SiteInfo,
    header: Header,
    *,
    described: bool = True,
    labels: bool = True,
) -> SiteInfo:
    """Return the facts of a site, from `write_site` or the header of a reply.

    Parameters
    ----------
    before : SiteInfo
        The other known facts of the site.
    header : mapping
        The facts, as JSON.
    described, labels : bool, default=True
        Whether its columns are described and not only named, and whether its labels are included.

    Raises
    ------
    WireError
        If a fact is missing or not understood; the message says which.

    Examples
    --------
    >>> columns = (Column("sex", "text", ("F", "M")),)
    >>> site = SiteInfo("north", (Limit("MinRows", (("n", 2),)),), columns=columns)
    >>> read_site(SiteInfo("north"), write_site(site)) == site
    True
    """
    if not isinstance(header.get("limits"), list):
        raise WireError("its limits are not a list of names and parameters")
    scalars = {name: type(default) for name, default in STATED.items() if name != "limits"}
    lacking = [name for name, kind in scalars.items() if type(header.get(name)) is not kind]
    lacking += ["labels"] if labels and "labels" not in header else []
    if lacking:
        what = SAID.get(lacking[0], f"its {lacking[0]}")
        raise UnknownError(f"it does not say {what}")
    facts = {name: header[name] for name in STATED} | {"limits": _limits(header["limits"])}
    if described:
        columns = _described(header.get("described"))
    else:
        columns = [Column(name) for name in _texts("columns", header.get("columns", []))]
    known = _labels(header["labels"]) if labels else None
    return replace(before, columns=tuple(columns), labels=known, **facts)


def _limits(plain: Sequence[Any]) -> tuple[Limit, ...]:
    """Read the limits of a site: few, short and finite, as they are stored in every model."""
    try:
        limits = tuple(map(Limit.from_plain, plain[: SIZES.most_limits + 1]))
    except ValueError as error:
        raise WireError(f"its limits are not understood: {error}") from error
    values = [value for limit in limits for _, value in limit.parameters]
    # Largest valid number in a reply, per row or in total: products of two are finite.
    sane = all(abs(x) <= 1e150 for x in values if isinstance(x, int | float))
    if len(limits) > SIZES.most_limits or len(values) > SIZES.most_limits**2 or not sane:
        raise WireError("its limits are too many, or hold a number that is not finite or too large")
    if any(len(str(limit)) > SIZES.longest_limit for limit in limits):
        raise WireError(f"a limit is longer than {SIZES.longest_limit} characters")
    return limits


def _described(columns: Any) -> list[Column]:
    """Read the columns of a site, with their kinds and levels."""
    try:
        described = [_column(*each) for each in columns]
    except (TypeError, ValueError) as error:
        raise WireError(f"the description of the columns is not understood: {error}") from error
    if len({column.name for column in described}) < len(described):
        raise WireError("two columns are described under one name")
    return described


def _column(name: Any, kind: Any, levels: Any) -> Column:
    if not isinstance(name, str) or kind not in KINDS or not is_texts(levels):
        raise ValueError("a column has a name, a kind and a list of texts")
    if len(levels) > (MOST_LEVELS if kind == "text" else 0):
        raise ValueError(f"a column of {kind} with {len(levels)} texts")
    return Column(name, kind, tuple(levels))


def _labels(labels: Any) -> tuple[str, ...] | None:
    """Read the reference labels of a site; None if it reports that it has none."""
    if labels is None:
        return None
    texts = _texts("labels", labels)
    if len(set(texts)) < len(texts) or len(texts) > MOST_LEVELS:
        raise WireError(f"its {len(texts)} labels are too many, or one is named twice")
    return texts


def _texts(what: str, texts: Any) -> tuple[str, ...]:
    if not is_texts(texts):
        raise WireError(f"its {what} are not a list of texts")
    return tuple(texts)


def is_texts(value: Any) -> bool:
    """Return whether a JSON value is a list of texts."""
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
