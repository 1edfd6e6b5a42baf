"""Answers that cannot be of the same kind of rows as those of the other sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcluster.core import Floats, Summary

FACTOR = 1e17
"""How many times as much for a row as other sites, or as 1, a site may say."""


def implausible(answers: Mapping[str, Sequence[Summary]]) -> dict[str, str]:
    """Return the sites whose sums are larger by far, for their weight, than those of the others.

    Numbers that are finite can be so large that all centres follow them, and that the other sites'
    answers about such centres overflow. So each column of each answer is held against the lower
    median of the sites.

    Parameters
    ----------
    answers : mapping of str to sequence of Summary
        The answers to the tasks of a round, by site; of equal shapes for a task but for the lines.

    Returns
    -------
    dict of str to str
        Those that are not believed, with the reason.

    Examples
    --------
    >>> said = {"a": 3.0, "b": 5.0, "c": 1e99}
    >>> implausible({name: [Summary(np.array([[x]]), np.ones(1))] for name, x in said.items()})
    {'c': 'it says 1e+99 for a row, where others say 5: not believed'}
    """
    why: dict[str, str] = {}
    for summaries in zip(*answers.values(), strict=True):
        spoke = {
            name: _for_a_row(summary)
            for name, summary in zip(answers, summaries, strict=True)
            if (summary.weights > 0).any()
        }
        if len(spoke) > 1:
            median = np.sort(list(spoke.values()), axis=0)[(len(spoke) - 1) // 2]
            for name, largest in spoke.items():
                beyond = largest > FACTOR * np.maximum(median, 1.0)
                if beyond.any():
                    j = int(beyond.argmax())
                    why[name] = (
                        f"it says {largest[j]:g} for a row, where others say {median[j]:g}: "
                        "not believed"
                    )
    return why


def _for_a_row(summary: Summary) -> Floats:
    """Return the largest sum of each column (p,) for its weight."""
    said = summary.weights > 0
    largest: Floats = np.abs(summary.sums[said] / summary.weights[said, None]).max(axis=0)
    return largest
