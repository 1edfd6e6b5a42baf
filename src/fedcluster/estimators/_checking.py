"""Parameters that are checked before any work: how many clusters, whole numbers, names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from numbers import Integral
from typing import Any

from fedcluster.jobs import tried


def most_clusters(n_clusters: Any, n_rows: int) -> int:
    """The largest number of clusters that is asked for, which there are rows for."""
    if isinstance(n_clusters, str):
        one_of("n_clusters", n_clusters, ("auto",), "a whole number or a range of them")
    elif isinstance(n_clusters, Iterable):
        for k in n_clusters:
            whole("each number of clusters to try", k)
    else:
        whole("n_clusters", n_clusters)
    ks = tried(n_clusters, n_rows)
    if ks == () and not isinstance(n_clusters, str):
        raise ValueError(f"n_clusters={n_clusters!r} holds no number to try")
    most = int(n_clusters) if ks is None else max(ks, default=1)
    if n_rows < most:
        raise ValueError(
            f"all sites together have n_samples={n_rows} rows: too few for "
            f"n_clusters={n_clusters}; ask for at most {n_rows} clusters"
        )
    return most


def whole(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def one_of(name: str, value: Any, names: Collection[str], or_else: str = "") -> Any:
    """A value that is among the names, or a refusal that lists them."""
    if value not in names:
        known = ", ".join(map(repr, names)) + (f" or {or_else}" if or_else else "")
        raise ValueError(f"{name} must be one of {known}, not {value!r}")
    return value
