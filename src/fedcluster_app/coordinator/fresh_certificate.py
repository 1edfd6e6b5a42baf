"""Server certificate that is reloaded when its files change, without a restart."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

FRESH = 1.0
"""Seconds between two checks for a changed certificate."""


class FreshCertificate:
    """TLS context of a server, into which a renewed certificate is loaded.

    Parameters
    ----------
    create : callable
        Creates the context, from arguments that include ``certfile`` and ``keyfile``.
    """

    def __init__(self, create: Callable[..., ssl.SSLContext]) -> None:
        self._create = create
        self._seen: dict[tuple[str, str], tuple[ssl.SSLContext, object]] = {}

    def __call__(self, **options: Any) -> ssl.SSLContext:
        """Return a context that follows its files from now on."""
        context = self._create(**options)
        chain = str(options["certfile"]), str(options["keyfile"])
        self._seen[chain] = context, [*map(file_state, chain)]
        return context

    def refresh(self) -> bool:
        """Reload a certificate and its key if they have changed and belong together.

        Returns
        -------
        bool
            Whether they were reloaded; later connections use them.
        """
        loaded = False
        for chain, (context, before) in list(self._seen.items()):
            with suppress(OSError):  # one of them is still the old one
                if (now := [*map(file_state, chain)]) != before:
                    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*chain)  # a trial
                    context.load_cert_chain(*chain)
                    self._seen[chain] = context, now
                    loaded = True
        return loaded

    async def follow(self) -> None:
        """Check for renewed files between handshakes, which the same thread begins."""
        while True:
            await asyncio.sleep(FRESH)
            self.refresh()


def file_state(path: str | Path) -> tuple[int, int] | None:
    """Return a value that changes whenever a file is written, None if there is no file."""
    with suppress(OSError):
        about = os.stat(path)
        return about.st_ino, about.st_mtime_ns
    return None
