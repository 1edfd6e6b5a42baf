"""Engine that answers from the records of an earlier run, as far as these do not rest on one site.

A run without a site asks the same questions as the run with it until one of them depends on that
site's answers. Up to there, what the other sites sent before is used; from there on they are asked.
So the result is exactly that of a run that never asked the site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Unpack

from fedcluster.core import Answers, Engine, Introduction, SiteInfo, Summary, Task
from fedcluster.engines._recorded import kept_answers, names_asked
from fedcluster.errors import InputError


class ForgettingEngine:
    """Engine of all sites but one, over the records of a run with it.

    Parameters
    ----------
    engine : Engine
        The other sites.
    folder : Path
        The records of the earlier run, see `RecordedEngine`.
    site : str
        The site that is forgotten.

    Attributes
    ----------
    reused : int
        Exchanges that were answered from the records.

    Raises
    ------
    InputError
        If the engine asks the site that is to be forgotten.
    """

    def __init__(self, engine: Engine, folder: Path, site: str) -> None:
        self._engine, self._folder, self._site = engine, folder, site
        self._asked, self.reused = 0, 0
        if site in {each.name for each in engine.introduce()}:
            raise InputError(f"site {site!r} is to be forgotten, and must not be asked")

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return what the other sites tell of themselves."""
        return self._engine.introduce(**asked)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Return what the other sites answered to the same question, or ask them."""
        names, asked = names_asked(self._engine, sites)
        path = self._folder / f"exchange-{self._asked:04d}"
        with_it = sorted([*names, self._site]), sorted([*asked, self._site])
        if self.reused == self._asked and path.exists():
            kept = kept_answers(path, tasks, *with_it)
            if kept is not None and set(asked) <= set(kept[0].by_site):
                self._asked, self.reused = self._asked + 1, self.reused + 1
                return [Answers(_only(each, asked), (), each.enough) for each in kept]
        self._asked += 1
        return self._engine.ask(tasks, asked)


def _only(answers: Answers, names: Sequence[str]) -> dict[str, Summary]:
    return {name: answers.by_site[name] for name in names}
