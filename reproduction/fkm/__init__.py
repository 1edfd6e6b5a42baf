"""S. Garst & M. Reinders, Federated K-means clustering, ICPR 2024 (arXiv 2310.01195).

Figures 1 to 9 of the ICPR paper; the arXiv paper has 1 to 3 under the same numbers, and 5, 6, 8
and 9 as its 4, 5, 6 and 7.

Sixteen clusters on a plane lie at five clients. FKM runs for 100 rounds and is compared with k-FED
(Dennis, Li & Smith 2021) and with k-means of the pooled rows. ARI_w, the score of the federated
ones, is the mean of the clients' own adjusted Rand indices weighted by their rows; that of pooled
k-means is the index of all rows. 200 runs each.

What the papers leave open, tried in `server_settings` and in figure 6:

- The runs of 2023 (all figures but 4 and 7; `FKM.program_2023`) took scikit-learn's server k-means
  of the time: ten restarts, seeds drawn without regard to weights. Clients sent plain k-means++
  seeds.
- Those of 2024 (figures 4 and 7; `FKM.program_2024`) took one restart, seeds by weight, and a
  client's seeds after one Lloyd iteration.

Where two centres that the sites sent are each other's only neighbours, k-means++ finds both equally
good to draw; without regard to weights that is often so. The programs leave the choice to the last
digits of sums, which depend on the processor. Here the one that was drawn first is chosen, so that
a seed has the same run on all processors.
"""

from reproduction.fkm.plane import fifty_rows, figure_1_examples, figure_1_rows, figure_2, more_rows
from reproduction.fkm.real_data import cancers, femnist
from reproduction.fkm.variants import ablation, few_clusters, server_settings
from reproduction.results import reproduce


def main(quick: bool) -> None:
    figures = [
        figure_1_rows,
        figure_1_examples,
        figure_2,
        fifty_rows,
        server_settings,
        ablation,
        few_clusters,
        femnist,
        cancers,
        more_rows,
    ]
    reproduce("fkm", figures, quick)
