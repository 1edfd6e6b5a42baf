"""The names that options take, as enumerations."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from fedcluster._choices import (
    ALGORITHMS,
    AVERAGINGS,
    FUZZY_ALGORITHMS,
    INITS,
    QUALITIES,
    RULES,
)


def _members(names: Iterable[str]) -> dict[str, str]:
    return {name.upper().replace("-", "_"): name for name in names}


Algorithm = StrEnum("Algorithm", _members({**ALGORITHMS, **FUZZY_ALGORITHMS}))  # type: ignore[misc]
Quality = StrEnum("Quality", _members(QUALITIES))  # type: ignore[misc]
Init = StrEnum("Init", _members(INITS))  # type: ignore[misc]
RuleName = StrEnum("RuleName", _members(RULES))  # type: ignore[misc]
AveragingName = StrEnum("AveragingName", _members(AVERAGINGS))  # type: ignore[misc]
DecimalSign = StrEnum("DecimalSign", {"POINT": ".", "COMMA": ","})
