"""Tasks bound to what a site tells of itself: of other levels and labels it knows nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol, Unpack

from fedcluster._texts import is_plain
from fedcluster.core import Column, Introduction, RowTransform, SiteInfo, Summary, Task
from fedcluster.metrics.external import Contingency
from fedcluster.privacy._ledger import PolicyError

KEPT = 4
"""Descriptions of columns that are kept, each with other columns as text."""


class SiteClient(Protocol):
    """Client of a site as far as questions need it, wherever its rows are."""

    @property
    def name(self) -> str:
        """Name of the site."""

    def introduce(self, **asked: Unpack[Introduction]) -> SiteInfo:
        """Return what the site tells of itself, see `Engine`."""

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to all tasks of a round."""


class Told:
    """What a site tells of some of its columns and its labels, remembered within a run.

    Parameters
    ----------
    client : SiteClient
        The site with these columns.
    """

    def __init__(self, client: SiteClient) -> None:
        self._client, self._run = client, ""
        self._descriptions: list[tuple[Column, ...]] = []
        self._labels: frozenset[str] | None = None

    def begin(self, run: str) -> None:
        """Forget what another run was told: the rows may be others by now."""
        if run != self._run:
            self._run, self._descriptions, self._labels = run, [], None

    def introduce(self, **asked: Unpack[Introduction]) -> SiteInfo:
        """Return what the site tells of itself."""
        site = _tellable(self._client.introduce(**asked))
        if asked.get("columns"):
            self._descriptions = [site.columns, *self._descriptions][:KEPT]
        if asked.get("labels"):
            self._labels = frozenset(site.labels or ())
        return site

    @property
    def width(self) -> int:
        """Return how many columns there are, for where they have no names to be counted by."""
        return self._client.introduce().n_columns or len(self._describe(()))

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to tasks, bound to what the site tells; they are finite.

        Raises
        ------
        PolicyError
            If a preparation takes a column for what it is not, or an answer is not finite.
        """
        answers = self._client.answers(self.bound(tasks))
        if not all(answer.is_finite for answer in answers):
            raise PolicyError("an answer is not finite")
        return answers

    def bound(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks without levels and labels that the site does not tell."""
        hows = {id(task.preprocessor): task.preprocessor for task in tasks}
        bound = {key: how and how.told_only(self._describe) for key, how in hows.items()}
        return [self._bound(task, bound[id(task.preprocessor)]) for task in tasks]

    def _bound(self, task: Task, how: RowTransform | None) -> Task:
        step = task.step
        if isinstance(step, Contingency):
            if self._labels is None:
                self.introduce(labels=True)
            step = step.told_only(self._labels or ())
        return replace(task, step=step, preprocessor=how)

    def _describe(self, texts: Collection[str]) -> tuple[Column, ...]:
        """Return the columns as the site tells of them, with these as text and maybe others."""
        for known in self._descriptions:
            if not any(column.name in texts and column.kind == "number" for column in known):
                return known
        return self.introduce(columns=True, texts=texts).columns


def _tellable(site: SiteInfo) -> SiteInfo:
    """Return a site without the texts and labels that no message may hold: see `is_plain`."""
    columns = (replace(c, levels=tuple(filter(is_plain, c.levels))) for c in site.columns)
    labels = None if site.labels is None else tuple(filter(is_plain, site.labels))
    return replace(site, columns=tuple(columns), labels=labels)
