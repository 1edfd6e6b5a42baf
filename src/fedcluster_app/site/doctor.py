"""Examination of a site before it takes part, and when something does not work.

It only opens a connection to the coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.kernels.runtime import compiled_mark
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership
from fedcluster_app.trust import findings
from fedcluster_app.trust.findings import DOUBTFUL, GOOD, WRONG, Finding
from fedcluster_app.trust.identity import Address


def examined(
    path: Path,
    transports: Sequence[str] = (),
    told: Mapping[str, str] | None = None,
    check_start: Callable[[Path], object] | None = None,
) -> Iterator[Finding]:
    """Yield the findings about a site, in the order in which it needs what is examined.

    Parameters
    ----------
    path : Path
        The site file.
    transports : sequence of str
        Packages of transports, whose versions are told if they are installed.
    told : mapping of str to str, optional
        What the coordinator tells the owner of the site's key: its ``status`` and ``version``.
    check_start : callable taking a Path, optional
        Raises an error if the program of the site would refuse to start.
    """
    yield findings.versions([*findings.PACKAGES, *transports])
    try:
        site = SiteFile.load(path)
        membership = Membership.from_site_file(site)
    except InputError as error:
        yield Finding("site file", WRONG, str(error))
        return
    yield Finding("site file", GOOD, f"site {site.name}")
    folder = path.absolute().parent
    yield findings.looked_at("rows", partial(_rows, site))
    if site.is_grouped:
        yield findings.looked_at("groups", partial(_groups, site))
    yield findings.looked_at("names", partial(_names, site))
    flare = folder / "flare" / "startup" / "rootCA.pem"  # who vouches for a server of FLARE
    authority = flare if flare.exists() else membership.authority(folder)
    yield findings.reached(Address.read(membership.coordinator), authority)
    yield from _own_key(told or {})
    if check_start is not None:
        yield findings.looked_at("start", partial(_start, path, check_start))
    yield findings.modes(folder)
    yield findings.disk(folder)
    warm = compiled_mark().exists()
    said = "compiled" if warm else "the first answer waits for them: run fedcluster warm-up"
    yield Finding("kernels", GOOD if warm else DOUBTFUL, said)


def _own_key(told: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what the coordinator says of the site's key, and whether its version is another."""
    status = told.get("status", "")
    if "clock" in status:
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        said = f"the key was {status} at the coordinator, and {now} UTC here: set the wrong one"
        yield Finding("clock", WRONG, said)
    elif status:
        yield Finding("key", GOOD if status == "known" else WRONG, f"{status} at the coordinator")
    if theirs := told.get("version"):
        same = theirs == version("fedcluster")
        advice = "" if same else ", another than here: sites are updated first, then it"
        said = f"the coordinator has fedcluster {theirs}{advice}"
        yield Finding("its version", GOOD if same else DOUBTFUL, said)


def _start(path: Path, check_start: Callable[[Path], object]) -> tuple[str, str]:
    """Return whether a start accepts what is in the site's folder."""
    check_start(path)
    return GOOD, "keys, log and state are in order"


def _rows(site: SiteFile) -> tuple[str, str]:
    """Return whether the rows can be read, how many there are, and whether any is answered for."""
    summary = site.summary()
    n, least = summary.n_rows, site.groups.min_rows if site.protection != "limits" else 1
    said = f"{n:,} rows, {len(summary.columns)} columns"
    if n < least:
        return WRONG, f"{said}; with fewer than {least} nothing is sent"
    if not site.is_grouped or site.has_means:
        return GOOD, said
    data, _ = site.grouping.examined(site.rows(raw=True))
    said = f"{said}; {data.n_rows:,.0f} rows in groups"
    if data.n_rows < least:
        return WRONG, f"{said}, and nothing is sent until {least} are"
    return GOOD if 2 * data.n_rows >= n else DOUBTFUL, said


def _groups(site: SiteFile) -> tuple[str, str]:
    """Return whether the groups are those that the log mentions."""
    site.check_groups()
    kept = site.groups_file.exists() or site.has_means
    return GOOD, "those that were made last" if kept else "none was made yet"


def _names(site: SiteFile) -> tuple[str, str]:
    """Return whether somebody at the site has seen the names of columns that leave."""
    known, now = site.for_network().told_names(), site.told_names()
    if new := [name for name in now if name not in known]:
        return (
            DOUBTFUL,
            f"columns {', '.join(new)} are not used: fedcluster check lets their names leave",
        )
    return GOOD, f"the names of {len(known)} columns may leave"
