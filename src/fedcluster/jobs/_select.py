"""Procedure of a choice of the number of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster._refusals import refused
from fedcluster._report._tables import SiteRecord
from fedcluster._specifications import Fit, SelectK
from fedcluster.core import SiteInfo
from fedcluster.jobs._fit import Clustering, check_rows, verdict, write_selection
from fedcluster.jobs._procedure import Found, JobReport
from fedcluster.preprocessing import Preprocessor
from fedcluster.rounds import Plan, with_preprocessing
from fedcluster.selection import Rule
from fedcluster.selection._sweep import clustered_by

SHARED = {each.name for each in fields(SelectK)} & {each.name for each in fields(Fit)}
"""The parameters that a choice and its clusterings have in common."""


class SelectProcedure(Clustering):
    """Procedure of a choice of the number of clusters."""

    file = "selection.json"

    def __init__(self, job: SelectK) -> None:
        super().__init__(job)
        self.auto = job.k_max is None
        sides = None if job.bounds is None else tuple(map(np.array, job.bounds))
        parameters = {name: getattr(job, name) for name in SHARED - {"rule", "bounds"}}
        parameters |= clustered_by(job.rule, job.m, job.averaging)
        parameters["rule"] = Rule(job.rule, job.pick, sides)  # type: ignore[arg-type]
        self.fit = Fit(range(job.k_min, job.k_last + 1), **parameters)

    def check(self, sites: Sequence[SiteInfo] = ()) -> None:
        """Refuse a choice that makes no sense, or not for these sites."""
        if self.job.averaging != "avg_2" and self.job.rule != "fuzzy-db":
            raise refused("choice-averaging")
        super().check(sites)

    def within(self, n_rows: float) -> SelectK:
        """Return the job with no more numbers of clusters than there are rows for."""
        job: SelectK = self.job
        check_rows(job.k_max or job.k_min, n_rows)
        few = job.k_max is not None or job.k_last > n_rows
        return replace(job, k_max=min(job.k_last, int(n_rows))) if few else job

    def whole_plan(
        self,
        sites: Sequence[SiteInfo],
        seed: int,
        preprocessor: Preprocessor | None,
        _columns: Sequence[str],
        _rounds: int,
    ) -> Plan[Found]:
        """Plan the choice."""
        plan = self.plan(sites, seed, preprocessor)
        return Found((yield from with_preprocessing(plan, preprocessor)))

    def content(self, report: JobReport, records: Sequence[SiteRecord] = ()) -> dict[str, Any]:
        """Return what ``selection.json`` and ``--json`` say of the choice, without its rounds."""
        account = report.account(records)
        return {**verdict(report.outcome.value), "seed": self.job.seed, **account}

    def write(self, folder: Path, report: JobReport, _content: Mapping[str, Any]) -> list[str]:
        """Write ``selection.json`` and the picture of its curves."""
        return write_selection(folder, report)
