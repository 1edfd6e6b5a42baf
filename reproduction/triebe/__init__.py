"""Oskar J. Triebe & Ram Rajagopal, Federated K-Means: algorithm and proof of concept, 2019.

Fifty sites of ten rows each lie on a line, every site within one of five clusters (means 1 to 5,
deviation 0.2). In each of T = 200 rounds a fraction C of the sites takes E steps of k-means with
the rate beta. Two measures of the end, on the sites that were trained on and on fifty others: the
mean distance to the nearest centre, at best 0.160, and the Davies-Bouldin index, at best 0.32.

What the paper leaves open:

- alpha = (1, 0.5), the server's rate; its program has none. Readings are tried in `server_rates`;
  which one the paper had cannot be told from figures of ten runs. The first of `SERVER` is used.
- whether a cluster is small among all rows (the text) or those of the round (the program).
- Runs: the program takes 30, 10, 10, 3, 3 and 10 for C = 0.01, 0.03, 0.1, 0.3, 1 and central.

A figure agrees if as many of its points lie inside the published bands as nineteen of twenty
perfect reproductions have inside (`perfect`), and if what the paper says of it holds.
"""

from reproduction.results import reproduce
from reproduction.triebe.ends import figures_1_to_5, server_rates
from reproduction.triebe.paths import figure_6, figure_7


def main(quick: bool) -> None:
    reproduce("triebe", [figures_1_to_5, server_rates, figure_6, figure_7], quick)
