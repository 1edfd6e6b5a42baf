"""Names for writing an extension of your own, in addition to those of `fedcluster.core`.

Algorithms, metrics and preparations declare what a site may be asked, by `Allowed` and its ranges.
A format opens a file as an `ArrowTable`. A transport carries messages between a `RemoteEngine` and
a `Responder` at each site. `load_plugins` makes a module's formats, steps and preparations known.

Examples
--------
A step declares what a site may be asked. Here, its rate lies between 0 and 1:

>>> allowed = Allowed({"rate": Real(0, 1)}, centers=CENTERS)
>>> allowed.fields["rate"].holds(2.0, {})
False
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fedcluster.algorithms import means, total
from fedcluster.core.ranges import CENTERS, Allowed, Array, Box, LineBounds, OneOf, Real, Whole
from fedcluster.engines.client import Client
from fedcluster.engines.remote import RemoteEngine, Transport
from fedcluster.engines.responder import Responder
from fedcluster.engines.wire import WireError, pack, steps_by_name, unpack
from fedcluster.io.plugins import load_plugins
from fedcluster.io.reader import ArrowTable
from fedcluster.io.sources import Format
from fedcluster.metrics.moments import Means, Squares
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing import Preparation
from fedcluster.preprocessing.fitting import STEPS as PREPARATION

__all__ = [
    "CENTERS",
    "Allowed",
    "Array",
    "ArrowTable",
    "Box",
    "Format",
    "LineBounds",
    "Means",
    "OneOf",
    "Preparation",
    "Real",
    "RemoteEngine",
    "Responder",
    "Squares",
    "Transport",
    "Whole",
    "WireError",
    "load_plugins",
    "means",
    "pack",
    "responder",
    "steps_by_name",
    "total",
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
    steps = options.pop("steps", None) or steps_by_name(PREPARATION)
    return Responder(
        client, steps=steps, preprocessors=partial(row_transform, steps=steps), **options
    )
