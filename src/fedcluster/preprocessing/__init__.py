"""Preprocessing of the rows of all sites alike, fitted from sums."""

from fedcluster.metrics._moments import Means, Squares
from fedcluster.preprocessing._fitting import Fitted, fit
from fedcluster.preprocessing._messages import in_words, noticed_in_words
from fedcluster.preprocessing._moments import Covariance, Missing, Principal, principal
from fedcluster.preprocessing._quantiles import Histogram, quantiles
from fedcluster.preprocessing._spec import FitReport, PreprocessingSpec, Schema, agree
from fedcluster.preprocessing._transform import (
    Category,
    NumericColumn,
    Preprocessor,
    aligned,
    on_whole_rows,
)

__all__ = [
    "Category",
    "Covariance",
    "FitReport",
    "Fitted",
    "Histogram",
    "Means",
    "Missing",
    "NumericColumn",
    "PreprocessingSpec",
    "Preprocessor",
    "Principal",
    "Schema",
    "Squares",
    "agree",
    "aligned",
    "fit",
    "in_words",
    "noticed_in_words",
    "on_whole_rows",
    "principal",
    "quantiles",
]
