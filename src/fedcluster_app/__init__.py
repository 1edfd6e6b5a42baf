"""What runs clustering over sites: files of rows, networks, logs, pages and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster_app.site.file import SiteFile

__all__ = ["SiteFile"]

__getattr__ = names_from(__name__, {"SiteFile": "site.file"})


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
