"""Preparing the rows of all sites alike, from sums: what a pipeline does where rows are pooled."""

from fedcluster.preparation.aligned import aligned, on_whole_rows
from fedcluster.preparation.fitting import Fitted, fit
from fedcluster.preparation.missing import Missing
from fedcluster.preparation.moments import Means, Squares
from fedcluster.preparation.principal import Covariance, principal
from fedcluster.preparation.quantiles import Cells, quantiles
from fedcluster.preparation.schema import Schema, agree
from fedcluster.preparation.transform import Category, Measure, Preparation, Principal
from fedcluster.preparation.wanted import MISSING, SCALES, Findings, Prepare
from fedcluster.preparation.words import in_words, noticed_in_words

__all__ = [
    "MISSING",
    "SCALES",
    "Category",
    "Cells",
    "Covariance",
    "Findings",
    "Fitted",
    "Means",
    "Measure",
    "Missing",
    "Preparation",
    "Prepare",
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
