"""What the sites of an engine tell of themselves, by name, of those that answered."""

from __future__ import annotations

from typing import Any

from fedcluster.core import Column, Engine


def disclosed_columns(engine: Engine, **asked: Any) -> dict[str, tuple[Column, ...]]:
    """Return the columns that each site describes."""
    told = engine.introduce(**{"columns": True, **asked})
    return {site.name: site.columns for site in told if site.answered}


def labels_told(engine: Engine) -> dict[str, tuple[str, ...] | None]:
    """Return the reference labels that each site tells, None where it has none."""
    told = engine.introduce(labels=True)
    return {site.name: site.labels for site in told if site.answered}
