"""Colours of pictures and charts."""

from __future__ import annotations

COLOURS = ("#3b6fb6", "#e0853a", "#4a9d6f", "#b4528c", "#8a7cc8", "#c9a227", "#5aa9b8", "#8c6d52")
INK, PALE_INK = "#1d2733", "#6b7683"
DEEPEST = 2.0
"""Distance in spreads at which the colour of a cell is full, in `shade`."""
