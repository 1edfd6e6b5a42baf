"""Preprocessing of the rows of all sites alike, fitted from sums."""

from fedcluster.preprocessing._columns import Category, NumericColumn
from fedcluster.preprocessing._own import Preparation
from fedcluster.preprocessing._spec import FitReport, PreprocessingSpec
from fedcluster.preprocessing._transform import Preprocessor

__all__ = [
    "Category",
    "FitReport",
    "NumericColumn",
    "Preparation",
    "PreprocessingSpec",
    "Preprocessor",
]
