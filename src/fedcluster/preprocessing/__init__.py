"""Preprocessing that is the same for the rows of all sites, fitted from sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.preprocessing.agreement import agree as agree
    from fedcluster.preprocessing.agreement import odd_sites as odd_sites
    from fedcluster.preprocessing.columns import Category, NumericColumn
    from fedcluster.preprocessing.comparison import unlike_sites as unlike_sites
    from fedcluster.preprocessing.fitting import first_tasks as first_tasks
    from fedcluster.preprocessing.fitting import fit as fit
    from fedcluster.preprocessing.fitting import n_columns_out as n_columns_out
    from fedcluster.preprocessing.likeness import OwnSums as OwnSums
    from fedcluster.preprocessing.likeness import known_columns as known_columns
    from fedcluster.preprocessing.moments import Covariance as Covariance
    from fedcluster.preprocessing.moments import Missing as Missing
    from fedcluster.preprocessing.screening import no_features as no_features
    from fedcluster.preprocessing.screening import screened as screened
    from fedcluster.preprocessing.spec import FitReport, PreprocessingSpec
    from fedcluster.preprocessing.transform import Preparation, Preprocessor

__all__ = [
    "Category",
    "FitReport",
    "NumericColumn",
    "Preparation",
    "PreprocessingSpec",
    "Preprocessor",
]

__getattr__ = names_from(  # lazy: rows without preparation need little of this package
    __name__,
    {
        "agree odd_sites": "agreement",
        "Category NumericColumn": "columns",
        "first_tasks fit n_columns_out": "fitting",
        "OwnSums known_columns": "likeness",
        "unlike_sites": "comparison",
        "Covariance Missing": "moments",
        "no_features screened": "screening",
        "FitReport PreprocessingSpec": "spec",
        "Preparation Preprocessor": "transform",
    },
)
