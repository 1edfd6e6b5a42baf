"""Sites that stand for other sites: a relay sends the sum of what its sites send.

A coordinator of thousands of sites asks some dozens of relays, each of which asks its own sites.
Sums of sums are sums, and `Summary` adds exactly, so the coordinator gets the same bits as from all
sites directly. It learns only the totals of relays, each over several sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from fedcluster.core import (
    Answers,
    Column,
    Engine,
    Introduction,
    Limit,
    SiteInfo,
    Step,
    Summary,
    Task,
)
from fedcluster.engines.client import AuditRecord
from fedcluster.errors import listed
from fedcluster.options.refusals import refused
from fedcluster.privacy.budget import PolicyError
from fedcluster.privacy.disclosure import Disclosure, SiteRules

FEWEST = 3
"""Smallest number of sites in an answer: each of two could infer the other's answer."""

STRICTER_IF_LARGER = ("MinRows", "MinClusterSize")
"""Limits of which the largest applies to all."""


class Relay:
    """Site that answers with the exact sums of other sites' answers.

    It can take the place of a `Client`: in a `LocalEngine`, or behind a `Responder`.

    Parameters
    ----------
    name : str
        Its name as a site.
    engine : Engine
        The engine that asks the relay's own sites.
    fewest : int, default=3
        The smallest number of its sites in an answer; with fewer answers, it refuses.
    lines : bool, default=False
        Whether ``fewest`` applies to each line too: a line with weight from fewer sites is held
        back, such as the sums of a cluster that only one site has.
    filters : sequence of Filter, default=()
        The relay's own limits on the total.

    Raises
    ------
    ValueError
        If ``fewest`` is below 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import Client, Data, LocalEngine, State
    >>> from fedcluster.algorithms import Lloyd
    >>> sites = [Client(name, Data(np.arange(4.0)[:, None])) for name in "abcdef"]
    >>> relays = [Relay("east", LocalEngine(sites[:3])), Relay("west", LocalEngine(sites[3:]))]
    >>> [answers] = LocalEngine(relays).ask([Task(Lloyd(), State.at([[0.0], [3.0]]))])
    >>> list(answers.by_site), answers.total().weights
    (['east', 'west'], array([12., 12.]))
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        fewest: int = FEWEST,
        *,
        lines: bool = False,
        filters: SiteRules = (),
    ) -> None:
        if fewest < FEWEST:
            raise ValueError(f"a relay speaks for at least {FEWEST} sites, not {fewest}")
        self.name, self.engine, self.fewest, self.lines = name, engine, fewest, lines
        self.disclosure = Disclosure.of(filters)
        self.audit_log: list[AuditRecord] = []

    def __repr__(self) -> str:
        return f"Relay({self.name!r}, fewest={self.fewest}, lines={self.lines})"

    @property
    def site(self) -> SiteInfo:
        """Metadata that the relay reports without a specific request."""
        return self.introduce()

    def introduce(self, **requested: Unpack[Introduction]) -> SiteInfo:
        """Return the combined metadata of the relay's sites; see `Engine`.

        Raises
        ------
        PolicyError
            If a planned step is not additive, too few of the sites answered, or their columns
            differ.
        RefusedError
            If lines of few sites must be held back, but sites send no sums of their own.
        """
        for step in requested.get("steps", ()):
            if not isinstance(step, type):
                _check_adds_up(step)
        sites = self.engine.introduce(**requested)
        responding = [site for site in sites if site.answered]
        self._check_enough(len(responding))
        if self.lines and any(site.secure for site in responding):
            raise refused("relay-lines", relay=self.name)
        own = Limit("Relay", (("fewest", self.fewest), ("lines", self.lines)))
        widths = {site.n_columns for site in responding}
        if len(widths) > 1:
            raise PolicyError(f"the sites of relay {self.name!r} have different columns")
        return SiteInfo(
            self.name,
            (*united_limits(responding, self.disclosure.stated), own),
            streams=True,
            columns=united_columns([site.columns for site in responding]),
            labels=united_labels(responding) if requested.get("labels") else None,
            n_rows=_sum(site.n_rows for site in responding),
            weight=_sum(site.weight for site in responding),
            n_columns=widths.pop(),
        )

    def answer(self, task: Task) -> Summary:
        """Return the answer to one task."""
        return self.answers([task])[0]

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the totals of the sites' answers to all tasks of a round.

        Raises
        ------
        PolicyError
            If a step is not additive or is asked with noise, or too few sites answered.
        """
        for task in tasks:
            _check_adds_up(task.step)
            if task.noise is not None:
                name = type(task.step).__name__
                raise PolicyError(f"{name} with noise: {refused('noise-relay')}")
        return [self._total(*each) for each in zip(tasks, self.engine.ask(tasks), strict=True)]

    def _check_enough(self, answered: int) -> None:
        if answered < self.fewest:
            raise PolicyError(
                f"too few sites answered relay {self.name!r}, which speaks for {self.fewest} or "
                "more"
            )

    def _total(self, task: Task, answers: Answers) -> Summary:
        """Return the part of the total that leaves, and log it."""
        self._check_enough(len(answers.answered))
        total = full = Summary.total(answers.summaries)
        if self.lines:  # those that enough sites have a weight in
            n_sites = np.sum([a.weights > 0 for a in answers.by_site.values()], axis=0)
            total = full.keep(n_sites >= self.fewest)
        n_rows = int(self.site.n_rows or 0) if self.disclosure.in_force else 0
        total = self.disclosure.apply(task, total, n_rows)
        lines = int(np.count_nonzero(total.weights))
        hidden = float(full.weights.sum() - total.weights.sum())
        self.audit_log.append(
            AuditRecord(
                task.state.round, repr(task.step), lines, total.n_values, 0, round(max(0.0, hidden))
            )
        )
        return replace(total, support=None)


def _check_adds_up(step: Step) -> None:
    if not step.server_additive:
        raise refused("relay-steps", step=type(step).__name__)


def united_limits(sites: Iterable[SiteInfo], own: Iterable[Limit]) -> tuple[Limit, ...]:
    """Return the limits of sites and of their relay, each once; for limits on size, the strictest.

    Examples
    --------
    >>> sites = [SiteInfo(name, (Limit("MinRows", (("n", n),)),)) for name, n in zip("ab", (5, 2))]
    >>> [str(limit) for limit in united_limits(sites, [])]
    ['MinRows(n=5)']
    """
    every = dict.fromkeys([*(limit for site in sites for limit in site.limits), *own])
    sizes: dict[str, list[Limit]] = {}
    for limit in every:
        if limit.name in STRICTER_IF_LARGER:
            sizes.setdefault(limit.name, []).append(limit)
    strictest = (
        max(alike, key=lambda x: max(n for _, n in x.parameters)) for alike in sizes.values()
    )
    others = (limit for limit in every if limit.name not in (*STRICTER_IF_LARGER, "Relay"))
    return (*strictest, *others)


def united_columns(each: Sequence[tuple[Column, ...]]) -> tuple[Column, ...]:
    """Return the columns of sites with equal columns, each with the levels of all sites.

    Examples
    --------
    >>> united_columns([(Column("sex", "text", ("F",)),), (Column("sex", "text", ("F", "M")),)])
    (Column(name='sex', kind='text', levels=('F', 'M')),)
    """
    names = {tuple(column.name for column in columns) for columns in each}
    if len(names) > 1:
        raise PolicyError(
            "the sites behind a relay have columns of other names or in another order"
        )
    return tuple(_united(column) for column in zip(*each, strict=True))


def _united(same: Sequence[Column]) -> Column:
    """Return the union of one column over all sites; it is empty if empty at some site."""
    kinds = {column.kind for column in same}
    if "mixed" in kinds or len(kinds - {"empty"}) > 1:
        raise PolicyError(
            f"column {same[0].name!r} is text at some sites behind a relay, and numbers at others"
        )
    if "empty" in kinds:
        return Column(same[0].name, "empty")
    levels = sorted({level for column in same for level in column.levels})
    return Column(same[0].name, kinds.pop(), tuple(levels))


def united_labels(sites: Sequence[SiteInfo]) -> tuple[str, ...] | None:
    """Return the labels of all sites; None if no site has any.

    Raises
    ------
    PolicyError
        If only some sites have labels.
    """
    lacking = [site.name for site in sites if site.labels is None]
    if lacking and len(lacking) < len(sites):
        raise PolicyError(f"no labels at {listed(lacking)} behind a relay, and labels at others")
    return None if lacking else tuple(sorted({x for site in sites for x in site.labels or ()}))


def _sum(numbers: Iterable[float | None]) -> float | None:
    """Return a sum; None if one of the numbers is unknown."""
    known = list(numbers)
    return None if None in known else float(sum(n for n in known if n is not None))
