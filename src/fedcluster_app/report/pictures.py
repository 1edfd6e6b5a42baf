"""Pictures, which need matplotlib, extra ``plot``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path


def pictured(what: str, path: Path, draw: Callable[[Path], None]) -> list[str]:
    """Write a picture; return the name of its file, or only a warning without matplotlib.

    Parameters
    ----------
    what : str
        What the file shows, such as "picture of the curves".
    path : Path
        The file.
    draw : callable taking a Path
        Writes it.
    """
    try:
        draw(path)
    except ImportError:
        warnings.warn(
            f'no {what} without matplotlib: pip install "fedcluster[plot]"',
            stacklevel=3,
        )
        return []
    return [path.name]
