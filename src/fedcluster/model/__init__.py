"""A fitted model: its file, the assignment of rows, and what is known of its clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.model.file import Model
    from fedcluster.model.run import Run as Run
    from fedcluster.model.stability import Stability as Stability
    from fedcluster.model.stability import stability_table as stability_table

__all__ = ["Model"]

__getattr__ = names_from(
    __name__, {"Model": "file", "Run": "run", "Stability stability_table": "stability"}
)  # imports without the model file, for plans
