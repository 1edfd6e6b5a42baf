"""The texts in the folder of a federation: instructions and site files."""

from __future__ import annotations

import json
from collections.abc import Sequence

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
    about = {"address": address, "sites": list(sites), "insecure": insecure}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in about.items()]
    readme = README.format(
        n=len(sites),
        address=address,
        handed=", ".join(f"`sites/{name}`" for name in sites),
        folder=folder,
        security=(INSECURE if insecure else SECURE).format(address=address),
    )
    texts = {
        "federation.toml": "".join(lines),
        "README.md": readme,
    }
    for site in sites:
        texts[f"sites/{site}/site.toml"] = SITE_TOML.format(
            name=json.dumps(site),
            address=json.dumps(address),
            credentials=NO_CREDENTIALS if insecure else CREDENTIALS,
        )
        texts[f"sites/{site}/README.md"] = SITE_README.format(
            site=site, address=address, keep="" if insecure else KEEP
        )
    return {name: text.encode() for name, text in texts.items()}
