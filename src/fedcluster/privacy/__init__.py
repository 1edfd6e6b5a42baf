"""Protection of a site: groups of rows, or filters on what leaves."""

from typing import TYPE_CHECKING

from fedcluster._lazy import names_from

if TYPE_CHECKING:
    from fedcluster.privacy._groups import Grouping
    from fedcluster.privacy._limits import Dominance, Groups, MinClusterSize, MinRows

__all__ = ["Dominance", "Grouping", "Groups", "MinClusterSize", "MinRows"]

__getattr__ = names_from(  # to load a model takes no compiler
    __name__, {"Grouping": "_groups", "Dominance Groups MinClusterSize MinRows": "_limits"}
)
