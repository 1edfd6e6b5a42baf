"""M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 2022.

The sites run FFCM for each number of clusters K and then, in one more round, send what the fuzzy
Davies-Bouldin index is made of; the K of the least index is chosen. Tables 1 and 2 do so on
artificial rows, tables 3 to 7 on the hundred G2 sets, z-scored, at 2, 5 and 10 sites.

What the paper leaves open, and what fits its tables and is used here:

- The artificial rows: never published; `reproduction.datasets.pentagon` stands in.
- The index: S_i of mean distances (q = 1), not of mean squares, since the least index is 0.546.
- The K of tables 3 to 7: {2, 3, 4} or {2, ..., 5} (`table_3`).
- Starts: uniform in the unit box, at the pooled rows, too.
- Which table is which: kept apart by the maxima, which k-means averaging keeps small.
"""

from reproduction.framework import bank
from reproduction.framework.artificial import tables_1_and_2
from reproduction.framework.sets import table_3, tables_4_and_5, tables_6_and_7
from reproduction.results import reproduce


def main(quick: bool) -> None:
    figures = [tables_1_and_2, table_3, tables_4_and_5, tables_6_and_7, *bank.FIGURES]
    reproduce("framework", figures, quick)
