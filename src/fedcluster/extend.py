"""Names for writing an algorithm, a metric or a preparation of your own, beside `fedcluster.core`.

They declare what a site may be asked, by `Allowed` and its ranges. `fedcluster_app.extend` has the
names for formats of files and for transports.

Examples
--------
A step declares what a site may be asked. Here, its rate lies between 0 and 1:

>>> allowed = Allowed({"rate": Real(0, 1)}, centers=CENTERS)
>>> allowed.fields["rate"].holds(2.0, {})
False
"""

from __future__ import annotations

from fedcluster.algorithms import means, total
from fedcluster.core.ranges import CENTERS, Allowed, Array, Box, LineBounds, OneOf, Real, Whole
from fedcluster.metrics.moments import Means, Squares
from fedcluster.preprocessing import Preparation

__all__ = [
    "CENTERS",
    "Allowed",
    "Array",
    "Box",
    "LineBounds",
    "Means",
    "OneOf",
    "Preparation",
    "Real",
    "Squares",
    "Whole",
    "means",
    "total",
]
