"""Choice of the number of clusters: every k in the same rounds, every index, and a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from
from fedcluster.recipes.specifications import Rule

if TYPE_CHECKING:
    from fedcluster.metrics.indices import INDICES
    from fedcluster.selection.verdict import Selection

__all__ = ["INDICES", "Rule", "Selection"]

# lazy: a fit with a stated k needs neither
__getattr__ = names_from(__name__, {"INDICES Selection": "verdict"})
