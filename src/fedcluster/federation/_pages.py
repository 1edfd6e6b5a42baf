"""The texts in the folder of a federation: instructions, site files, Flower's thin app."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedcluster.federation._folders import Federation


PYPROJECT = """\
# What Flower asks for to run an app. All of its code is in the package fedcluster.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedcluster-app"
version = "1.0.0"
dependencies = []

[tool.flwr.app]
publisher = "fedcluster"

[tool.flwr.app.components]
serverapp = "fedcluster_app:server"
clientapp = "fedcluster_app:client"

[tool.flwr.app.config]
job = ""
"""

APP = '''\
"""What Flower runs: the apps of the installed package fedcluster."""

from fedcluster.transports.flower import _app

server = _app.server
client = _app.client
'''

README = """\
# A federation of {n} sites

The coordinator is at {address}. It sees sums and counts, never a row.

1. Give each site its own folder, `sites/NAME`, on a way that nobody else reads: {handed}.
   Delete it here afterwards.
2. Start the coordinator, and leave it running:

       fedcluster federation start {folder}

3. Each site starts, as its README says.
4. Ask the sites:

       fedcluster federation run {folder} fit -k 4 --out result

   A run that was broken off goes on with `fedcluster federation run {folder} resume RUN`;
   `fedcluster federation show {folder}` names the runs and the sites that are connected.

{security}
"""

SECURE = """\
Sites connect to {address}: that port must be open here, none at the sites. Connections are
encrypted (TLS, `certificates/`), and a site proves by its key who it is (`keys/`).

`certificates/ca.key`, `certificates/server.key` and the sites' `key` are secret."""

INSECURE = """\
THIS FEDERATION IS INSECURE, for trials on one machine: nothing is encrypted, and whoever reaches
{address} can pretend to be a site."""

SITE_README = """\
# Site {site}

Your rows stay where they are. Only sums over many rows leave this site, and a line of
`audit.jsonl` says so of each.

1. Install the package: `pip install "fedcluster[flower]"`.
2. Fill in `site.toml`: where the rows are, which columns may be used, and your own limits.
3. See what your limits would do; nothing is sent:

       fedcluster check site.toml

4. Take part, as long as this runs:

       fedcluster site start site.toml

   This site connects to {address}; nothing connects to it.
5. The common model and the clusters of your rows come to `results/`. The clusters never leave.
   What left is shown by

       fedcluster site log site.toml
{keep}"""

SITE_TOML = """\
# What this site decides for itself. Nobody else reads this file.

name = {name}

# The columns that may be clustered by. Without this line: all, which must then be numbers.
# columns = ["age", "bmi"]

# The column with reference labels. With this line the coordinator may ask how far clusters agree
# with them, and is told the labels that enough rows have.
# label_column = "diagnosis"

[source]
path = "rows.csv"  # CSV or Parquet

[limits]
min_rows = 2          # with fewer rows in all, nothing is sent
min_cluster_size = 2  # a sum over fewer rows is not sent

[federation]
coordinator = {address}
{credentials}results = "results"   # the model and the clusters of the rows come here
log = "audit.jsonl"    # what left, one line for each answer
# steps = ["my_package.my_module.MyStep"]  # steps that may be asked, besides those of fedcluster
"""


def coordinator(federation: Federation) -> dict[str, bytes]:
    """The coordinator's files, by their names."""
    about = {
        "address": federation.address,
        "sites": list(federation.sites),
        "insecure": federation.insecure,
    }
    listed = ", ".join(f"`sites/{name}`" for name in federation.sites)
    security = (INSECURE if federation.insecure else SECURE).format(address=federation.address)
    readme = README.format(
        n=len(federation.sites),
        address=federation.address,
        handed=listed,
        folder=federation.folder.name,
        security=security,
    )
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in about.items())
    return {
        "federation.toml": lines.encode(),
        "README.md": readme.encode(),
        "app/pyproject.toml": PYPROJECT.encode(),
        "app/fedcluster_app.py": APP.encode(),
    }


def site(federation: Federation, name: str) -> dict[str, bytes]:
    """The files that are handed to one site."""
    credentials = (
        "insecure = true  # for trials on one machine: nothing is encrypted\n"
        if federation.insecure
        else 'certificate = "ca.crt"  # by it this site knows the coordinator\n'
        'key = "key"               # by it the coordinator knows this site\n'
    )
    keep = "" if federation.insecure else "\n`key` is secret: by it the coordinator knows you.\n"
    toml = SITE_TOML.format(
        name=json.dumps(name), address=json.dumps(federation.address), credentials=credentials
    )
    readme = SITE_README.format(site=name, address=federation.address, keep=keep)
    return {f"sites/{name}/site.toml": toml.encode(), f"sites/{name}/README.md": readme.encode()}
