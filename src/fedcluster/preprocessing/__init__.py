"""Preparing the rows of all sites alike, from sums: what a pipeline does where rows are pooled."""

from fedcluster.metrics._moments import Means, Squares
from fedcluster.preprocessing._columns import Category, NumericColumn, Principal
from fedcluster.preprocessing._contents import Missing
from fedcluster.preprocessing._fitting import Fitted, fit
from fedcluster.preprocessing._messages import in_words, noticed_in_words
from fedcluster.preprocessing._principal import Covariance, principal
from fedcluster.preprocessing._quantiles import Histogram, quantiles
from fedcluster.preprocessing._schema import Schema, agree
from fedcluster.preprocessing._spec import MISSING, SCALES, FitReport, PreprocessingSpec
from fedcluster.preprocessing._transform import Preprocessor, aligned, on_whole_rows

__all__ = [
    "MISSING",
    "SCALES",
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
