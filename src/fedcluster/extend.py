"""Names for writing an algorithm or a metric of your own, beside those of `fedcluster.core`.

Examples
--------
A step declares what a site may be asked. Here, its rate lies between 0 and 1:

>>> allowed = Allowed({"rate": Real(0, 1)}, centers=CENTERS)
>>> allowed.fields["rate"].holds(2.0, {})
False
"""

from __future__ import annotations

from fedcluster._ranges import CENTERS, Allowed, Array, OneOf, Real, Whole
from fedcluster.algorithms import means, total

__all__ = ["CENTERS", "Allowed", "Array", "OneOf", "Real", "Whole", "means", "total"]
