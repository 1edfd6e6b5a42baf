"""What `forked` has imported and warmed; it starts no thread, so that it can be forked."""

from contextlib import suppress
from importlib import import_module

import forked  # noqa: F401
import numpy as np
import scipy.optimize
import scipy.spatial  # noqa: F401

import fedcluster_app.site.file
import fedcluster_app.site.worker  # noqa: F401
from fedcluster.kernels import hard_pass, nearest

for _n in (4, 4000):
    hard_pass(np.eye(_n, 2), np.eye(2))
    nearest(np.eye(_n, 2), np.eye(2))
for _name in (
    "dp_accounting.pld.privacy_loss_distribution",
    "opendp.measurements",
    "pandas",
    "sqlalchemy.dialects.sqlite",
):
    with suppress(ModuleNotFoundError):
        import_module(_name)
