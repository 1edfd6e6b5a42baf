"""Preprocessing that is the same for the rows of all sites, fitted from sums."""

from fedcluster.preprocessing.columns import Category, NumericColumn
from fedcluster.preprocessing.own import Preparation
from fedcluster.preprocessing.spec import FitReport, PreprocessingSpec
from fedcluster.preprocessing.transform import Preprocessor

__all__ = [
    "Category",
    "FitReport",
    "NumericColumn",
    "Preparation",
    "PreprocessingSpec",
    "Preprocessor",
]
