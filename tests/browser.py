"""A headless Chromium, driven over a pipe: no library, no port, and no network.

The protocol is that of the Chrome DevTools: JSON with a zero byte after each message, which the
browser reads from its file descriptor 3 and writes to 4 (``--remote-debugging-pipe``).
"""

import contextlib
import json
import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program() -> str | None:
    """The path of a Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of a browser, with what it complained of and what it asked for."""

    def __init__(self, to_browser, from_browser):
        self._to, self._from, self._number, self._rest = to_browser, from_browser, 0, b""
        self._session = None
        self.errors, self.requests = [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """Have the browser do something; its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (came := self._next()).get("id") != self._number:
            self._keep(came)
        assert "error" not in came, came
        return came["result"]

    def _next(self):
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _keep(self, event):
        about = event.get("params", {})
        if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(about)
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(self, address, width=1280, scheme="light"):
        """Load a page, at a width and in a colour scheme, and wait until all of it is there."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.send("Page.navigate", url=address)
        while (came := self._next()).get("method") != "Page.loadEventFired":
            self._keep(came)

    def value(self, expression):
        """The value of an expression in the page."""
        came = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in came, came["exceptionDetails"]
        return came["result"].get("value")


@contextlib.contextmanager
def page(profile):
    """A page of a browser that ends with the block."""
    reads, to_browser = os.pipe()
    from_browser, writes = os.pipe()

    def hand_over():  # in the new process
        for here, there in ((os.dup(reads), 3), (os.dup(writes), 4)):
            os.dup2(here, there)

    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        [program() or NAMES[0], *options, "about:blank"],
        preexec_fn=hand_over,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        os.close(reads)
        os.close(writes)
        yield Page(to_browser, from_browser)
    finally:
        process.kill()
        process.wait()
        os.close(to_browser)
        os.close(from_browser)
