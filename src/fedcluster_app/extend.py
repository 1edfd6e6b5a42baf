"""Names for writing a format or a transport of your own, beside those of `fedcluster.extend`.

A format opens a file as an `ArrowTable`. A transport carries messages between a `RemoteEngine` and
a `Responder` at each site. `load_plugins` makes a module's formats, steps and preparations known.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fedcluster.engines.client import Client
from fedcluster.engines.wire import WireError, pack, steps_by_name, unpack
from fedcluster.frames.reader import ArrowTable
from fedcluster.model.assigned_rows import row_transform
from fedcluster_app.tables.plugins import load_plugins
from fedcluster_app.tables.sources import Format
from fedcluster_app.wire.remote import RemoteEngine, Transport
from fedcluster_app.wire.responder import Responder

__all__ = [
    "ArrowTable",
    "Format",
    "RemoteEngine",
    "Responder",
    "Transport",
    "WireError",
    "load_plugins",
    "pack",
    "responder",
    "steps_by_name",
    "unpack",
]


def responder(client: Client, **options: Any) -> Responder:
    """Return a site that answers messages, with the steps and preparations of its plugins.

    Parameters
    ----------
    client : Client
        The site.
    **options : object
        Options of `Responder`.
    """
    steps = options.pop("steps", None) or steps_by_name()
    return Responder(
        client, steps=steps, preprocessors=partial(row_transform, steps=steps), **options
    )
