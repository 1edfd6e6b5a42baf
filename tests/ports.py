"""Ports for servers of tests, and waiting for what they do."""

import socket
import time
from collections.abc import Callable


def free_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until something holds; fail after two minutes."""
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
