"""The functions that vantage6 may call by name; it can call everything in this module."""

from fedcluster_app.transports.vantage6._functions import *  # noqa: F403 - those of its `__all__`
