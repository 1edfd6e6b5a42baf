"""Protection of a site: groups of rows, or filters on what leaves."""

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.privacy.budget import Budget as Budget
    from fedcluster.privacy.budget import PrivacySpent as PrivacySpent
    from fedcluster.privacy.groups import Grouping
    from fedcluster.privacy.limits import Dominance, Groups, MinClusterSize, MinRows

__all__ = ["Dominance", "Grouping", "Groups", "MinClusterSize", "MinRows"]

__getattr__ = names_from(  # lazy: loading a model must not import numba
    __name__,
    {
        "Budget PrivacySpent": "budget",
        "Grouping": "groups",
        "Dominance Groups MinClusterSize MinRows": "limits",
    },
)
