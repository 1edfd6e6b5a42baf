"""Command of a site that makes the key by which its coordinator knows it."""

from __future__ import annotations

from typing import Any

from fedcluster.cli import _site as commands
from fedcluster.cli._options import AsJson
from fedcluster.cli._screen import Screen, needs
from fedcluster.cli._site import SiteToml

app = commands.app


@app.command("new-key", epilog="Example: fedcluster site new-key site.toml")
def new_key(site_file: SiteToml, as_json: AsJson = False) -> None:
    """Make a new key by which the coordinator knows this site; only its public part leaves.

    Send key.pub to the coordinator, who compares the digest with you, for example by telephone, and
    runs fedcluster federation rotate-key. A site that runs then takes the new key by itself.
    """
    needs("cryptography", "flower")
    from fedcluster._site import SiteFile
    from fedcluster.federation._certificates import make_site_key

    with Screen(as_json=as_json, quiet=False) as screen:
        site = SiteFile.load(site_file)
        key = str(site.federation.get("key", "key"))
        made = make_site_key(site_file.absolute().parent, key)
    told: dict[str, Any] = {
        "site": site.name,
        "public_key": str(made.public),
        "digest": made.digest,
    }
    lines = [f"Wrote {made.public}: send it to the coordinator. Its digest is", made.digest]
    if made.waits:
        lines.append("The present key counts until the coordinator has accepted the new one.")
    screen.result({**told, "digest": made.digest, "waits": made.waits}, lines)
