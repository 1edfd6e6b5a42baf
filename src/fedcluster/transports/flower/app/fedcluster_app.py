"""The apps of the installed package fedcluster, as Flower asks for them."""

from fedcluster.transports.flower._app import client, server

__all__ = ["client", "server"]
