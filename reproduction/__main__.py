"""Every figure and table of the papers: python -m reproduction [--quick] [PAPER ...]."""

from __future__ import annotations

import argparse
from importlib import import_module

from reproduction.report import PAPERS, gather


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("--quick", action="store_true", help="few runs, into .cache/reproduction")
    parser.add_argument("--gather", action="store_true", help="only write RESULTS.md anew")
    arguments = parser.parse_args()
    if arguments.gather:
        return gather(arguments.quick)
    for paper in arguments.papers:
        if paper not in PAPERS:
            parser.error(f"there is no paper {paper!r}: choose from {', '.join(PAPERS)}")
    for paper in arguments.papers or PAPERS:
        import_module(f"reproduction.{paper}").main(arguments.quick)


if __name__ == "__main__":
    main()
