"""A plugin: a preparation of one's own, which is fitted by asking the sites."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcluster.core import State, Task
from fedcluster.extend import Means


@dataclass(frozen=True)
class Halved:
    """Halves of what lies around the mean of each column, which no rounding changes."""

    middle: tuple[float, ...] = ()

    def names(self, names: Sequence[str]) -> Sequence[str]:
        return [f"half of {name}" for name in names]

    def apply(self, X: Any) -> Any:
        return (X - np.array(self.middle or 0.0)) / 2

    def invert(self, X: Any) -> Any:
        return 2 * X + np.array(self.middle or 0.0)

    def fit(self, names: Sequence[str]) -> Any:
        [answers] = yield [Task(Means(), State())]
        told = answers.total()
        return Halved(tuple((told.sums[:, 0] / told.weights).tolist()))

    def check(self, width: int) -> None:
        if self.middle and len(self.middle) != width:
            raise ValueError(f"middle must have {width} numbers")
