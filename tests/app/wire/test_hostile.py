"""Questions that no coordinator of this package asks: answered within the policy or refused.

FEDCLUSTER_HOSTILE says how many of each step; ``make hostile`` asks 10,000.
"""

import copy
import json
import os
import resource
import sys
import time
import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from test_laws import STEPS, asked, by_name

from fedcluster.algorithms import FFCM, FedAvg
from fedcluster.core import Column, Data, State, Step, Task
from fedcluster.core.ranges import Array, OneOf, Texts, Whole, allowed_of
from fedcluster.engines import wire
from fedcluster.engines.client import Client
from fedcluster.kernels.rows import leaf_sums, next_cuts
from fedcluster.metrics.columns import ClusterColumns
from fedcluster.metrics.external import Contingency
from fedcluster.metrics.moments import Means, Moments, SiteSize, Squares
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.preprocessing.moments import Covariance, Missing, Principal
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster_app.wire.policy import Policy, PolicyLimits
from fedcluster_app.wire.responder import Responder

pytestmark = pytest.mark.thorough

MANY = int(os.environ.get("FEDCLUSTER_HOSTILE", "40"))
SECONDS, MEGABYTES = 10.0, 600  # a question takes 0.4 s where nothing else runs
P = 5
"""The smallest number of rows behind a line."""

NASTY: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 500, 501, 10**6, 10**9, 2**63, 10**30, -(2**63)),
    *(0.0, -0.0, 1.0, 0.5, 1e-320, 1e-100, 1e100, 1e101, 1e308, float("nan"), float("inf")),
    *("", "a", "\0", "\x1b[2J", "\u202e", "\U0001f600" * 9, "x" * 100_000, "[]", "[" * 5000),
    *("k-means++", "random", "converge", "u", "Lloyd", "__class__", "1e400", "NaN", "-inf"),
    *([], [[]], [1, 2], ["age"], {}, {"a": 1}, {"step": "Lloyd"}, [None] * 50),
]
SIZES = (0, 1, 2, 3, 7, 1000, 1001, 5000)


def rows() -> Data:
    rng = np.random.default_rng(1)
    numbers = rng.normal(50, 9, size=(400, 2))
    numbers[::40, 0] = np.nan
    ward = np.where(np.arange(400) < 399, rng.integers(0, 3, 400), 3).astype(float)
    labels = np.where(np.arange(400) < 398, rng.choice(["ill", "well"], 400), "rare")
    columns = (Column("age"), Column("bmi"), Column("ward", "text", ("a", "b", "c", "zell")))
    return Data(np.column_stack([numbers, ward]), y=labels, columns=columns)


LIMITS: dict[str, Any] = {"filters": [MinRows(20), MinClusterSize(P)]}
CLIENTS = [Client("a", rows(), **how) for how in (LIMITS, {"protection": Groups(P)})]


def sites() -> list[Responder]:
    most, names = 10**9, tuple(column.name for column in rows().columns)
    limits = PolicyLimits(max_rounds_per_day=most, max_runs_per_day=most)
    return [Responder(c, columns=names, policy=Policy(limits), **KNOWN) for c in CLIENTS]


def preparation(step: Step) -> Preprocessor | None:
    """A preparation with all that one may have; none for steps that look at rows as they are."""
    if isinstance(step, SiteSize | Missing):
        return None
    numbers = (NumericColumn("age", (0.0, 120.0), True, 50.0, 4.0, 0.5), NumericColumn("bmi"))
    texts = Category("ward", ("a", "b", "c"), True, "a")
    principal = Principal((0.0,) * 6, tuple(map(tuple, np.eye(6)[:3].tolist())), (1.0,) * 3)
    return Preprocessor((*numbers, texts), "drop", principal)


def base(step: Step) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    centers = np.array([[0.0, 0.0, 0.0], [1.0, 9.0, 0.0], [2.0, 50.0, 1.0]])
    state = asked(step, centers)
    if isinstance(step, Covariance | Squares | Moments):
        state = State.at(centers[:1])
    elif not getattr(step, "needs_centers", True) or isinstance(step, Means | SiteSize | Missing):
        state = State()
    if isinstance(step, FedAvg):
        step = FedAvg()
    if isinstance(step, Contingency):
        step = Contingency.from_classes(["ill", "well"], complete=False)
    headers, arrays = wire.write_tasks([Task(step, state, 7, preparation(step))] * 2)
    return {"protocol": wire.PROTOCOL, "run": "r", "exchange": 0, "tasks": headers}, arrays


def any_of(rng: np.random.Generator, values: Any) -> Any:
    return copy.deepcopy(values[int(rng.integers(len(values)))])


def places(content: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value: its container, and its key or index there."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    found = []
    for key, value in list(items):
        found.append((content, key))
        if isinstance(value, dict | list):
            found += places(value)
    return found


def change_header(header: dict[str, Any], rng: np.random.Generator) -> None:
    kind = rng.integers(8)
    if kind == 0:
        more = ("columns", "raw", "described", "labels", "model", "arrays", "permit", "x")
        header[any_of(rng, more)] = any_of(rng, NASTY)
        return
    tasks = header.get("tasks")
    inside = tasks if kind < 6 and isinstance(tasks, list) else header
    if not (spots := places(inside)):
        return
    container, key = spots[int(rng.integers(len(spots)))]
    if kind == 7 and isinstance(container, dict):
        del container[key]
    else:
        container[key] = any_of(rng, NASTY)


def change_arrays(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    if not arrays:
        return
    name = any_of(rng, list(arrays))
    array, kind = arrays[name], rng.integers(5)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[f"0.memory.{any_of(rng, ('means', 'basis', 'x', ''))}"] = np.ones((3, 3))
    elif kind == 2:
        shape = tuple(any_of(rng, SIZES) for _ in range(rng.integers(3)))
        arrays[name] = np.zeros(shape)
        if array.size:  # as `np.resize` does, which takes long to repeat one number
            arrays[name].flat[:] = array
    elif array.size:
        array = arrays[name] = array.astype(float)
        values = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e100, 1e-320, -1.0, 0.5, 0.0, 1e20)
        array.flat[int(rng.integers(array.size))] = any_of(rng, values)
        if kind == 4:
            arrays[name] = array * any_of(rng, (0.0, -1.0, 1e30, 1e99, 1e-99))


def change_bytes(message: bytes, rng: np.random.Generator) -> bytes:
    content, kind = bytearray(message), rng.integers(4)
    end = len(content) if rng.integers(2) else content.index(b"\n") + 1
    at = int(rng.integers(end))
    if kind == 0:
        for _ in range(rng.integers(1, 8)):
            content[int(rng.integers(end))] = int(rng.integers(256))
    elif kind == 1:
        del content[at : at + int(rng.integers(1, 200))]
    elif kind == 2:
        content[at:at] = content[at : at + int(rng.integers(1, 2000))]
    else:
        content[at:at] = rng.bytes(int(rng.integers(1, 50)))
    return bytes(content)


def packed(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Write a message as `wire.pack` does, of anything."""
    shapes = [[name, *array.shape] for name, array in arrays.items()]
    line = json.dumps({"arrays": shapes, **header}).encode()
    return b"".join([line, b"\n", *(a.astype("<f8").tobytes() for a in arrays.values())])


def question(given: tuple[dict[str, Any], dict[str, np.ndarray]], i: int) -> bytes:
    """Return the i-th hostile question made of another: one to three things are changed."""
    rng = np.random.default_rng([i, zlib.crc32(json.dumps(given[0]).encode())])
    header, arrays = copy.deepcopy(given)
    header["run"] = f"r{i}"
    for _ in range(rng.integers(1, 4)):
        if rng.integers(3):
            change_header(header, rng)
        else:
            change_arrays(arrays, rng)
    message = packed(header, arrays)
    return change_bytes(message, rng) if rng.integers(5) == 0 else message


EDGES = (0.0, 1e-300, 1e-100, 0.5, 1.0, -1.0, 1e20, -1e100, 1e100)


def value_in(held: Any, sizes: dict[str, int], rng: np.random.Generator) -> Any:
    if isinstance(held, Texts):
        names = [f"label {i}" for i in range(int(rng.integers(1001)))]
        return json.dumps(["ill", *names][:1000])
    if isinstance(held, OneOf):
        return any_of(rng, held.values)
    if isinstance(held, Whole):
        most = held.most * sizes.get(held.of, 1)
        near = any_of(rng, (held.least, held.least + 1, 7, most - 1, most))
        return min(most, max(held.least, near))
    return any_of(rng, (held.least, held.most, min(held.most, held.least + 1e-9), 1.0))


def array_in(held: Array, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = tuple(sizes[name] for name in held.shape)
    if held.below:
        return rng.integers(0, max(1, sizes[held.below]), shape).astype(float)
    least, most = max(held.least, -1e100), min(held.most, 1e100)
    if rng.integers(2):
        values = rng.choice(np.clip(EDGES, least, most), shape)
    else:
        values = np.clip(rng.normal(0, 10.0 ** rng.integers(-9, 9), shape), least, most)
    return np.sort(values, axis=-1) if held.rising else values


def preparation_in(rng: np.random.Generator) -> Preprocessor:
    size = any_of(rng, (0.0, 1.0, 50.0, 1e20, 1e50))
    bounds = any_of(rng, (None, (0.0, 0.0), (-1e50, 1e50), (40.0, 50.0)))
    fill, scale = any_of(rng, (None, size, -size)), any_of(rng, (1e-50, 1e-9, 1.0, 1e50))
    number = NumericColumn("age", bounds, bool(rng.integers(2)), fill, -size, scale)
    levels = any_of(rng, ((), ("a",), ("zell", "a", "x"), tuple(map(str, range(500)))))
    other = any_of(rng, ((True,), (False, None, True), (True, *levels[:1])))
    text = Category("ward", levels, *other)
    missing = any_of(rng, ("error", "drop", "keep"))
    how = Preprocessor(any_of(rng, ((number,), (number, text), (text, number))), missing)
    if rng.integers(2):
        return how
    d = len(how.names)
    turned = np.linalg.qr(rng.normal(size=(d, d)))[0][: int(rng.integers(1, 4))]
    lines = tuple(map(tuple, turned.tolist()))
    return replace(how, principal=Principal((size,) * d, lines, (size,) * len(lines)))


def within(step: Step, i: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the i-th question about a step at the ends of what it declares."""
    rng = np.random.default_rng([i, *type(step).__name__.encode()])
    (header, _) = copy.deepcopy(base(step))
    many = (1, 3, 30) if isinstance(step, FFCM) else (1, 3, 30, 500)  # FFCM: 1,000 iterations
    how, most = preparation(step), {"max_clusters": any_of(rng, many)}
    if how is not None and rng.integers(2):
        how = preparation_in(rng)
    sizes = {**most, "d": 3 if how is None else how.n_columns_out}
    given = {name: value_in(each, most, rng) for name, each in allowed_of(step).fields.items()}
    try:
        allowed = allowed_of(replace(step, **given))  # type: ignore[type-var]
    except ValueError:  # no such step can be made; it is asked for all the same
        allowed = allowed_of(step)
    sizes["k"] = value_in(allowed.centers, sizes, rng)
    sizes |= {name: min(200, value_in(held, sizes, rng)) for name, held in allowed.sizes.items()}
    memory = {} if allowed.optional and rng.integers(2) else allowed.memory
    arrays = {"0.centers": array_in(Array(("k", "d")), sizes, rng)}
    arrays["0.weights"] = array_in(Array(("k",), 0.0), sizes, rng)
    arrays |= {f"0.memory.{name}": array_in(each, sizes, rng) for name, each in memory.items()}
    task = header["tasks"][0] | {"memory": list(memory)}
    if how is not None:
        task["preprocessing"] = how.plain()
    task["fields"] |= given
    return {**header, "run": f"w{i}", "tasks": [task]}, arrays


def check(reply: bytes) -> str:
    """Return what a reply is; what is answered must be within the site's limits."""
    header, arrays = wire.unpack(reply)
    assert header["site"] == "a"
    for key in ("refused", "failed"):
        if key in header:
            assert not arrays
            assert len(str(header[key])) <= 400
            assert "zell" not in str(header[key])
            return f"{key} {header[key]}" if key == "failed" else key
    for summary in wire.read_summaries(arrays):
        assert np.isfinite(summary.sums).all()
        assert np.isfinite(summary.weights).all()
    assert "zell" not in json.dumps(header.get("described", ""))
    return "answered"


def memory() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def timed(responder: Responder, message: bytes) -> tuple[float, str]:
    """Return the seconds that a reply takes, by the clock or the processor, and what it is."""
    begun = time.perf_counter(), time.process_time()
    reply = responder.reply(message)
    return min(time.perf_counter() - begun[0], time.process_time() - begun[1]), check(reply)


@by_name(STEPS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_question_at_the_ends_of_what_is_declared_is_answered_in_time(step: Step) -> None:
    """Or its answer is not finite, and does not leave."""
    asked, kinds, slowest = sites(), Counter[str](), (0.0, -1)
    for site in asked:
        site.reply(packed(*base(step)))
    for i in range(MANY // 4):
        seconds, kind = timed(asked[i % 2], packed(*within(step, i)))
        slowest = max(slowest, (seconds, i))
        kinds[kind] += 1
    assert slowest[0] < SECONDS, slowest
    assert kinds["answered"] > MANY / 20, kinds


@by_name(STEPS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_hostile_question_is_answered_within_the_policy_or_refused(step: Step) -> None:
    asked, kinds, given = sites(), Counter[str](), base(step)
    assert [check(site.reply(packed(*given))) for site in asked] == ["answered"] * 2  # as it is
    grown, slowest = 0.0, (0.0, -1)
    for i in range(MANY):
        message = question(given, i)  # which may have 200 MB itself
        before = memory()
        seconds, kind = timed(asked[i % 2], message)
        grown += memory() - before
        slowest = max(slowest, (seconds, i))
        kinds[kind] += 1
    assert slowest[0] < SECONDS, slowest
    assert grown < MEGABYTES
    assert kinds["refused"] > MANY / 3, kinds


def test_cuts_that_are_no_tree_s_do_not_go_round() -> None:
    """Leaf 1 is cut before it is made, and after: its rows must not be sent back."""
    parent, child, column = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]])
    cuts = parent, child, column, np.full(4, 0.5)
    for following in next_cuts(cuts, 2)[:2]:
        assert all(after == -1 or after > cut for cut, after in enumerate(following))
    rows = np.arange(4.0)[:, None]
    _, weights, counts = leaf_sums(rows, cuts, np.zeros((2, 1)))
    assert weights.sum() == counts.sum() == 4


def test_more_texts_than_columns_are_not_looked_for() -> None:
    state = State(np.zeros((1, 2)), np.zeros(1), memory={"texts": np.array([1e9, 0.0])})
    assert ClusterColumns().answer_shape(state, 2) == (1 + 2 + 2, 2)
