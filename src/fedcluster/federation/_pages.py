"""The texts in the folder of a federation: instructions and site files, from ``templates/``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")

SECURE = """\
Sites connect to {address}: that port must be open here, none at the sites. Connections are
encrypted (TLS, `certificates/`), and a site proves by its key who it is (`keys/`).

`certificates/ca.key`, `certificates/server.key` and the sites' `key` are secret."""

INSECURE = """\
THIS FEDERATION IS INSECURE, for trials on one machine: nothing is encrypted, and whoever reaches
{address} can pretend to be a site."""

CREDENTIALS = """\
certificate = "ca.crt"  # by it this site knows the coordinator
key = "key"               # by it the coordinator knows this site
"""

NO_CREDENTIALS = """\
insecure = true  # for trials on one machine: nothing is encrypted
"""

KEEP = """
`key` is secret: by it the coordinator knows you.
"""


def pages(address: str, sites: Sequence[str], folder: str, *, insecure: bool) -> dict[str, bytes]:
    """Return the texts of a federation, by the names of their files.

    Parameters
    ----------
    address : str
        HOST:PORT of the coordinator.
    sites : sequence of str
        The names of the sites.
    folder : str
        The name of the folder, as commands are given it.
    insecure : bool
        Without certificates and keys.
    """
    site_files = {"site.toml": _template("site.toml"), "README.md": _template("site.md")}
    about = {"address": address, "sites": list(sites), "insecure": insecure}
    texts = {
        "federation.toml": "".join(f"{key} = {json.dumps(about[key])}\n" for key in about),
        "README.md": _template("README.md").format(
            n=len(sites),
            address=address,
            handed=", ".join(f"`sites/{name}`" for name in sites),
            folder=folder,
            security=(INSECURE if insecure else SECURE).format(address=address),
        ),
    }
    for site in sites:
        for name, template in site_files.items():
            texts[f"sites/{site}/{name}"] = template.format(
                site=site,
                address=address,
                quoted_site=json.dumps(site),
                quoted_address=json.dumps(address),
                credentials=NO_CREDENTIALS if insecure else CREDENTIALS,
                keep="" if insecure else KEEP,
            )
    return {name: text.encode() for name, text in texts.items()}


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")
