"""Run the command line: ``python -m fedcluster_app`` does what ``fedcluster`` does."""

from __future__ import annotations

from fedcluster_app.cli import app

if __name__ == "__main__":
    app(prog_name="fedcluster")
