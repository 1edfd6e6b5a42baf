"""Fits of preparations to the rows of sites in this process."""

from collections.abc import Mapping, Sequence
from typing import Any

from introductions import disclosed_columns

from fedcluster.core import Filter
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing.agreement import agree
from fedcluster.preprocessing.fitting import fit
from fedcluster.rounds import run_plan


def engine_of(sites: Mapping[str, Any], filters: Sequence[Filter] = ()) -> LocalEngine:
    return LocalEngine(Client(name, rows, filters) for name, rows in sites.items())


def outcome_of(sites: LocalEngine | Mapping[str, Any], *filters: Filter, **prepare: Any) -> Any:
    """The outcome of fitting a preparation to the columns on which sites agree."""
    engine = sites if isinstance(sites, LocalEngine) else engine_of(sites, filters)
    spec = PreprocessingSpec(**prepare)
    schema = agree(disclosed_columns(engine, texts=spec.named), spec.columns)
    return run_plan(fit(spec, schema), engine)


def fitted(sites: LocalEngine | Mapping[str, Any], *filters: Filter, **prepare: Any) -> Any:
    """What is found: `preprocessor` and `fit_report`."""
    return outcome_of(sites, *filters, **prepare).value
