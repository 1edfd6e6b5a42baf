"""What came of a job, as it is told: the preparation, the sites, who was missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedcluster.core import SiteInfo
from fedcluster.engines._remote import Refusal
from fedcluster.preprocessing import FitReport, PreprocessingSpec, Preprocessor, in_words
from fedcluster.report import plain
from fedcluster.rounds import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class JobReport:
    """What came of a job.

    Parameters
    ----------
    outcome : Outcome
        What the plan returned.
    columns : tuple of str
        The columns that were asked about.
    sites : tuple of SiteInfo
        Who was asked, with their limits.
    steps : tuple of str
        What was asked, each once.
    refusals : tuple of Refusal
        Who is missing in which exchange.
    preparation : Preprocessor, optional
        What was done to the rows.
    findings : Findings
        What was met while it was fitted.
    """

    outcome: Outcome[Any]
    columns: tuple[str, ...]
    sites: tuple[SiteInfo, ...]
    steps: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    preprocessor: Preprocessor | None = None
    fit_report: FitReport = field(default_factory=FitReport)

    def of_preprocessing(self, prepare: PreprocessingSpec | None) -> dict[str, Any]:
        """What is told of a preparation: sentences, and the same for programs."""
        if prepare is None or self.preprocessor is None:
            return {}
        found = self.fit_report
        return {
            "prepared": in_words(prepare, self.preprocessor, found),
            "preprocessing": {
                "missing": plain(found.missing),
                "left_out": plain(found.left_out),
                "pooled": plain(found.pooled),
                "only_at": [[*key, site] for key, site in found.only_at.items()],
            },
        }

    def of_sites(self) -> dict[str, Any]:
        """What is told of every job: rounds, sites, who was missing."""
        sent = self.outcome.values_sent()
        return {
            "rounds": len(self.outcome.communication_rounds),
            "sites": [
                {
                    "name": site.name,
                    "weight": site.weight,
                    "limits": [limit.plain() for limit in site.limits],
                    "values_sent": sent.get(site.name, 0),
                }
                for site in self.sites
            ],
            "missing": [plain(refusal) for refusal in self.refusals],
        }
