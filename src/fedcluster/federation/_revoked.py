"""The sites whose key was taken back, as the folder of a federation says it at any moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.federation._notices import state_of
from fedcluster.federation._site_keys import REVOKED, accepted_keys, former_keys


class RevokedSites:
    """The sites that have no key since theirs was revoked, and since when.

    If the folder does not tell any more which keys were revoked, that is all sites.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    sites : iterable of str
        The sites that are asked about.
    """

    def __init__(self, folder: Path, sites: Iterable[str]) -> None:
        self._folder, self._sites = folder, tuple(sites)
        self._seen, self._told = "", dict[str, str]()

    def __call__(self) -> Mapping[str, str]:
        """Return the reason for each of them."""
        if (seen := state_of(self._folder)) != self._seen:
            self._seen, self._told = seen, self._read()
        return self._told

    def _read(self) -> dict[str, str]:
        try:
            keys = accepted_keys(self._folder, self._sites)
            former = sorted(former_keys(self._folder).values(), key=lambda key: key.at)
        except InputError as error:
            return dict.fromkeys(self._sites, f"nobody knows whose key was revoked: {error}")
        last = {key.site: key for key in former}
        return {
            site: f"its key was revoked on {key.at}"
            for site, key in last.items()
            if key.why == REVOKED and not keys.get(site, ("another site",))
        }
