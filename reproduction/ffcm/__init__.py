"""M. Stallmann & A. Wilbik, Towards federated clustering: FFCM, FL-AAAI 2022.

Federated fuzzy c-means with two ways to average the sites' centres: by position (avg_1), or by a
k-means of all of them (avg_2), beside fuzzy c-means of the pooled rows. The tables' "SSE" are sums
of plain distances, not squared, over rows and columns: to a row's own centre (within) and to all
others (outside). The gap is the sum over the centres found of the distance to the nearest true
one.

The tables were made by the authors' program of autumn 2021, which is followed in everything that
text and tables leave open (histories of stallmo/federated_clustering before 2c4838f, and of
stallmo/cluster_library at 481e7d5):

- Each site runs to convergence and weighs its centres by sums of u (`FFCM.program_2021`); the text
  says one step and u^m.
- Sites start from whole numbers in [-10, 10), central fuzzy c-means from random memberships.
- The k-means of avg_2 starts anew in each round.
- "SSE" of a federated run are means over the sites, whatever their sizes. A run that has not
  converged after 1,000 rounds leaves each site with its own centres.
- The gaps of table 4 are of standardised distances; those of tables 3 and 5 of plain ones.

The program draws the rows anew in each run here; whether the authors did is not known. `readings`
does one of these things at a time otherwise.
"""

from reproduction.ffcm.cases import tables_2_to_4
from reproduction.ffcm.pictures import figure_1, figure_2, figure_3
from reproduction.ffcm.readings import tables_2_to_5
from reproduction.ffcm.sets import figure_4, table_5
from reproduction.results import reproduce


def main(quick: bool) -> None:
    figures = [figure_1, tables_2_to_4, figure_2, figure_3, table_5, figure_4, tables_2_to_5]
    reproduce("ffcm", figures, quick)
