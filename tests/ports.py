"""Ports for servers of tests."""

import socket


def free_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
