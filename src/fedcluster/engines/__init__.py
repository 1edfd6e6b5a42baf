"""Engines, which carry tasks to the sites and bring their answers back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.engines._dask import DaskEngine
    from fedcluster.engines.batched import LocalEngine

__all__ = ["DaskEngine", "LocalEngine"]

__getattr__ = names_from(  # lazy: reading a site file must not import numba
    __name__, {"LocalEngine": "batched", "DaskEngine": "_dask"}
)
