"""M. Stallmann & A. Wilbik, Towards federated clustering: FFCM, FL-AAAI 2022.

Federated fuzzy c-means with two ways to average the sites' centres: by position (avg_1), or by a
k-means of all of them (avg_2), beside fuzzy c-means of the pooled rows. The tables' "SSE" are sums
of plain distances, not squared, over rows and columns: to a row's own centre (within) and to all
others (outside). The gap is the sum over the centres found of the distance to the nearest true
one.

What text and tables leave open, and what fits the tables and is used here:

- Each site runs to convergence and weighs its centres by sums of u, as the program; the text says
  one step, which fits worse, and u^m, which hardly differs (`variants`).
- Central fuzzy c-means starts from whole numbers in [400, 700) in all tables, as the program; the
  best of five k-means++ starts does better (`variants`).
- The gaps of table 4 are divided by the number of centres and by sqrt(d), those of table 3 are not
  (`gaps_of_table_4`).
- Whether the ten repetitions redraw the rows: here every run does.
"""

from reproduction.ffcm.cases import tables_2_to_4
from reproduction.ffcm.pictures import figure_1, figure_2, figure_3
from reproduction.ffcm.readings import gaps_of_table_4, variants
from reproduction.ffcm.sets import figure_4, table_5
from reproduction.results import reproduce


def main(quick: bool) -> None:
    figures = [figure_1, tables_2_to_4, variants, gaps_of_table_4, figure_2, figure_3]
    reproduce("ffcm", [*figures, table_5, figure_4], quick)
