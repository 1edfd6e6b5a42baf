"""What arrives as bytes is read whole or refused with a reason."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcluster.algorithms import FKM, Lloyd
from fedcluster.core import State, Step, Task
from fedcluster.engines import wire
from fedcluster.engines.wire import WireError
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.preprocessing.moments import Principal

CENTERS = np.array([[0.5, 1.0], [2.0, np.pi], [np.nan, -np.inf]])


@dataclass(frozen=True)
class Mine:
    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    power: float = 2.0

    def answer_shape(self, state, n_columns):
        raise NotImplementedError

    def client_step(self, state, data, rng):
        raise NotImplementedError


@dataclass(frozen=True)
class Undeclared:
    client_additive: ClassVar[bool] = True
    client_step = Mine.client_step


def test_arrays_come_back_as_the_same_bits_and_can_be_written():
    arrays = {"a": CENTERS, "b": np.zeros(0), "c": np.float64(3.0) + np.zeros(()), "d": CENTERS.T}
    packed = wire.pack({"name": "Ærø"}, arrays)
    header, back = wire.unpack(packed)
    assert header == {"name": "Ærø"}
    assert json.loads(packed.split(b"\n")[0]).items() > header.items()  # JSON in one line
    given, got = ([(n, x.shape, x.tobytes()) for n, x in d.items()] for d in (arrays, back))
    assert got == given
    assert all(x.flags.writeable and x.flags.c_contiguous for x in back.values())
    line = b'{"arrays":[["a"],["b",0],["c",1,1]]}\n'
    assert wire.unpack(line + bytes(16))[1].keys() == {*"abc"}


def test_nothing_but_float64_is_sent():
    with pytest.raises(WireError, match="centers is float32 of shape"):
        wire.pack({}, {"centers": CENTERS.astype(np.float32)})
    with pytest.raises(WireError, match="of at most 3 dimensions"):
        wire.pack({}, {"centers": np.zeros((2, 2, 2, 2))})


def announced(shapes: object, numbers: bytes = b"") -> bytes:
    return json.dumps({"arrays": shapes}).encode() + b"\n" + numbers


NO_JSON = [b"", b"\x80\x04K\x01.", b"[]\n", b"{}\n", b"[" * 100_000]
NO_JSON += [b'{"arrays":' + b"[" * 900_000 + b"\n"]
NO_SHAPES: list[Any] = [[-1], [1.5], [1.0], [True], [1, 1, 1, 1], ["1"], [None], [[1]]]
NO_MESSAGES = [
    (bytes(101), "101 bytes; at most 100 are read"),
    (announced([["a", 10**18, 10**18]], bytes(8)), "bytes of numbers announced, 8 received"),
    (announced([], bytes(8)), "^0 bytes of numbers announced, 8 received"),
    (announced([[str(i), 0] for i in range(100_001)]), "100,001 arrays; at most 100,000"),
    (json.dumps({"arrays": [], "more": "a" * 16_000_000}).encode() + b"\n", "no header that can"),
    *((announced([["a", *shape]], bytes(8)), "no header that can be read") for shape in NO_SHAPES),
    *((text, "no header that can be read") for text in NO_JSON),
    *(
        (announced([["a", 2]], bytes(n)), f"^16 bytes of numbers announced, {n} received")
        for n in (0, 8, 9, 24)
    ),
]


@pytest.mark.parametrize(("message", "reason"), NO_MESSAGES, ids=range(len(NO_MESSAGES)))
def test_what_is_no_message_is_refused(message, reason):
    with pytest.raises(WireError, match=reason):
        wire.unpack(message, largest=100 if len(message) == 101 else wire.SIZES.largest)


def test_a_function_does_not_travel():
    with pytest.raises(WireError, match=r"FKM\(client_init=.* must be a number, a text"):
        wire.write_tasks([Task(FKM(2, client_init=lambda X, k, random_state: X[:k]), State())])


def written(asked: Step, change: dict[str, object]) -> tuple[Any, Any]:
    [header], arrays = wire.write_tasks([Task(asked, State.at(np.eye(2)))])
    return [{**header, **change}], arrays


NO_PREPARATIONS: list[Any] = [True, 0, -1, 7, "x", [], {}]
NO_PREPARATIONS += [{"columns": [], "missing": "guess", "principal": None}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"step": "os.system"}, "'os.system' is not among the steps that this site knows"),
        ({"fields": {"tolerance": 1.0}}, "does not have these fields: .'tolerance'"),
        ({"step": ["Lloyd"]}, "is not among the steps"),
        ({"fields": {"tol": [1]}}, "are not names with scalars"),
        ({"fields": None}, "are not names with scalars"),
        ({"memory": ["tree"]}, "task 0 is not whole"),
        ({"seed": "x"}, "task 0 is not whole"),
        *(
            ({"preprocessing": how}, "the preparation of task 0 is not understood")
            for how in NO_PREPARATIONS
        ),
    ],
)
def test_a_task_that_is_not_understood_is_refused(change, reason):
    with pytest.raises(WireError, match=reason):
        wire.read_tasks(*written(Lloyd(), change), preprocessors=Preprocessor.from_plain)


def test_a_site_knows_a_step_of_one_s_own_only_where_it_allows_it():
    headers, arrays = written(Mine(power=3.0), {})
    with pytest.raises(WireError, match="'Mine' is not among the steps"):
        wire.read_tasks(headers, arrays)
    steps = wire.steps_by_name([f"{__name__}.Mine"])
    [task] = wire.read_tasks(headers, arrays, steps)
    assert task.step == Mine(power=3.0)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("Mine", "cannot be imported"),
        ("no_such_module.Mine", "cannot be imported"),
        (f"{__name__}.Yours", "cannot be imported"),
        (f"{__name__}.CENTERS", "is not a step"),
        ("fedcluster.core.Data", "is not a step"),
        (f"{__name__}.Undeclared", "Undeclared lacks server_additive, answer_shape; see"),
    ],
)
def test_what_is_no_step_is_not_allowed(path, reason):
    with pytest.raises(WireError, match=reason):
        wire.steps_by_name([path])


def test_answers_that_do_not_belong_together_are_refused():
    with pytest.raises(WireError, match="not whole"):
        wire.read_summaries({"0.sums": np.eye(2), "1.weights": np.ones(2)})
    with pytest.raises(WireError, match="a summary has sums"):
        wire.read_summaries({"0.sums": np.eye(2), "0.weights": np.ones(3)})


PREPARATION = Preprocessor(
    (
        NumericColumn("age", (0.1, 1e300), log=True, fill=np.pi, shift=1 / 3, scale=5e-324),
        Category("sex", ("F", "M"), other=True, fill="F"),
    ),
    "drop",
    Principal((0.1, -0.0, 2.0), ((1.0, 1e-17, 0.3),), (0.7,)),
)


def test_a_preparation_comes_back_with_the_same_bits_and_travels_once():
    other = Preprocessor((NumericColumn("age"),))
    given = [PREPARATION, None, PREPARATION, other, other]
    headers, arrays = wire.write_tasks([Task(Lloyd(), State(), preprocessor=p) for p in given])
    sent, arrays = wire.unpack(wire.pack({"tasks": headers}, arrays))
    assert [each.get("preprocessing") for each in sent["tasks"][1:3]] == [None, 0]
    tasks = wire.read_tasks(sent["tasks"], arrays, preprocessors=Preprocessor.from_plain)
    back = [task.preprocessor for task in tasks]
    assert repr(back) == repr(given)
    assert back[0] is back[2]
    assert back[3] is back[4]
