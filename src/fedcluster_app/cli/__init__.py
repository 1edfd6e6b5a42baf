"""The command line: ``fit``, ``predict``, ``select-k``, ``evaluate``, ``federation`` and so on."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcluster_app.cli import _commands as commands
from fedcluster_app.cli import _federation as federation
from fedcluster_app.cli import _flare as flare
from fedcluster_app.cli import _site as site
from fedcluster_app.cli._screen import OneLine

app = typer.Typer(
    name="fedcluster",
    cls=OneLine,
    pretty_exceptions_enable=False,  # local variables in tracebacks would show rows
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(federation.app, name="federation")
app.add_typer(site.app, name="site")
app.add_typer(flare.app, name="flare")


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Cluster rows that must stay where they are.

    Several sites hold rows of the same kind. Each sends only weighted sums, and all get the
    clusters that k-means finds on the rows of all sites together.
    """
    if version:
        from fedcluster import __version__

        typer.echo(f"fedcluster {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(
    epilog="Example: fedcluster fit north.csv south.csv west.parquet -k 3 --columns age,bmi "
    "--out result"
)(commands.fit)
app.command(epilog="Example: fedcluster predict result/model.json new.csv --out new-labels")(
    commands.predict
)
app.command(
    "select-k",
    epilog="Example: fedcluster select-k north.csv south.csv west.csv --k-max 8 --out chosen",
)(commands.select_k)
app.command(
    epilog="Example: fedcluster check north.csv south.csv",
    short_help="Compare files of several sites, or check a site file or a result.",
)(site.check)
app.command(
    epilog="Example: fedcluster audit site.toml --fail-above 0",
    short_help="Attack a site on its own machine, and count the rows that attacks read.",
)(commands.audit)
app.command(epilog="Example: fedcluster evaluate result/model.json north.csv south.csv west.csv")(
    commands.evaluate
)
app.command(
    short_help="Describe what sets the clusters of a model apart, and propose names.",
    epilog="Example: fedcluster profile result/model.json north.csv south.csv west.csv",
)(commands.profile)
app.command(
    short_help="Compare the clusters of a model by outcomes that were not clustered by.",
    epilog="Example: fedcluster compare result/model.json north.csv south.csv --outcome died "
    "--outcome cost",
)(commands.compare)
app.command(
    short_help="Draw files shaped like those of the sites of a model.",
    epilog="Example: fedcluster simulate result/model.json --out drawn",
)(commands.simulate)
app.command(
    short_help="Name the clusters of a model.",
    epilog="Example: fedcluster name result/model.json '0=older, high blood pressure' 2=young",
)(commands.name)
app.command(
    short_help="Write a page about a run, to read in a browser.",
    epilog="Example: fedcluster report result",
)(commands.report)
app.command(
    short_help="Follow a run of a federation on a page.",
    epilog="Example: fedcluster watch trial",
)(commands.watch)
app.command(
    "warm-up",
    short_help="Compile the numerical kernels in advance.",
    epilog="Example: fedcluster warm-up",
)(commands.warm_up)
