"""M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 2022.

The sites run FFCM for each number of clusters K and then, in one more round, send what the fuzzy
Davies-Bouldin index is made of; the K of the least index is chosen. Tables 1 and 2 do so on
artificial rows, tables 3 to 7 on the hundred G2 sets, at 2, 5 and 10 sites, ten runs each.

What the paper leaves open, and what is used here (stallmo/cluster_library at 2f3b9f8 and 81ac598,
stallmo/federated_clustering at 2c4838f and d655a42):

- The artificial rows: never published; `reproduction.datasets.pentagon` stands in.
- The index: S_i of mean distances (q = 1), not of mean squares, since the least index is 0.546.
- The K of tables 3 to 5: 2 and 3; tables 6 and 7 are at the true K = 2.
- The gap of tables 6 and 7: standardised Euclidean distances, as until April 2022.
- Rows and starts of tables 3 to 7: as the programs stood in March 2022, when the index was new:
  each table scaled by its least and largest number, pooled rows from random memberships, sites
  from integers of [-10, 10). `reproduction.framework.variants` shows what each of these changes.
- Which table is which: kept apart by the maxima, which k-means averaging keeps small.
"""

from reproduction.framework import bank
from reproduction.framework.artificial import tables_1_and_2
from reproduction.framework.sets import tables_4_and_5, tables_6_and_7
from reproduction.framework.variants import table_3_and_variants
from reproduction.results import reproduce


def main(quick: bool) -> None:
    tables = [tables_1_and_2, table_3_and_variants, tables_4_and_5, tables_6_and_7]
    reproduce("framework", [*tables, *bank.FIGURES], quick)
