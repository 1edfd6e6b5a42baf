"""Run the command line: ``python -m fedcluster`` does what ``fedcluster`` does."""

from __future__ import annotations

from fedcluster.cli import app

if __name__ == "__main__":
    app(prog_name="fedcluster")
