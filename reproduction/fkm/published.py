"""Numbers of the FKM papers, from the authors' results in swiergarst/fedKMeans at b1f39cf.

Means, population standard deviations and quartiles of 200 runs; those of figures 1b, 5b and 6 are
read off the papers' vector graphics, which hold quartiles only: where one is compared, its standard
error is that of the median of a normal sample with these quartiles. Rounded to four digits; those
of figure 8, in published/fkm_figure_8.csv, are its arrays' (results/abl).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping

from reproduction.results import HERE, Estimate

RUNS = 200
ROUNDS = (1, 2, 5, 10, 20, 50, 100)

Numbers = Mapping[str, float]


def _table(text: str) -> dict[tuple[str, ...], Numbers]:
    """Lines of words that name and numbers that are named, by the words."""
    heads, *lines = [line.split() for line in text.split("\n") if line]
    names = sum(head in {"figure", "data", "method", "variant", "beta", "noise"} for head in heads)
    return {
        tuple(line[:names]): dict(zip(heads[names:], map(float, line[names:]), strict=True))
        for line in lines
    }


def mean(numbers: Numbers, of: str = "") -> Estimate:
    """A published mean; ``of`` is the round of a curve."""
    return Estimate(numbers[f"mean{of}"], numbers[f"sd{of}"], RUNS)


def median(numbers: Numbers) -> Estimate:
    return Estimate.quartiles(numbers["median"], numbers["q25"], numbers["q75"], RUNS)


PLANE = _table("""
method beta noise mean sd median q25 q75
FKM 0.1 1 .9492 .0085 .9496 .9468 .9504
FKM 0.1 1.1 .9259 .0020 .9267 .9244 .9270
FKM 0.1 1.2 .8796 .0181 .8842 .8842 .8842
FKM 0.1 1.3 .8339 .0194 .8414 .8353 .8438
FKM 0.1 1.4 .7767 .0310 .7882 .7761 .7944
FKM 0.1 1.5 .6965 .0162 .7009 .6910 .7067
FKM 1 1 .9577 .0029 .9574 .9570 .9613
FKM 1 1.1 .9223 .0085 .9227 .9219 .9243
FKM 1 1.2 .8861 .0157 .8882 .8871 .8911
FKM 1 1.3 .8444 .0268 .8530 .8481 .8548
FKM 1 1.4 .7857 .0319 .7965 .7861 .8051
FKM 1 1.5 .7066 .0332 .7193 .7046 .7270
FKM 10 1 .9571 .0081 .9569 .9560 .9591
FKM 10 1.1 .9270 .0117 .9278 .9265 .9297
FKM 10 1.2 .8869 .0268 .8962 .8937 .8969
FKM 10 1.3 .8397 .0314 .8505 .8461 .8553
FKM 10 1.4 .7678 .0342 .7826 .7712 .7907
FKM 10 1.5 .7086 .0346 .7231 .6821 .7315
kFed 0.1 1 .6899 .0776 .7017 .6383 .7560
kFed 0.1 1.1 .6404 .0750 .6437 .5875 .6968
kFed 0.1 1.2 .5980 .0755 .6016 .5372 .6520
kFed 0.1 1.3 .5420 .0569 .5361 .4968 .5835
kFed 0.1 1.4 .4796 .0471 .4783 .4414 .5113
kFed 0.1 1.5 .4316 .0399 .4298 .4016 .4570
kFed 1 1 .7286 .0560 .7284 .6891 .7684
kFed 1 1.1 .7029 .0572 .6965 .6641 .7434
kFed 1 1.2 .6502 .0576 .6468 .6099 .6947
kFed 1 1.3 .6134 .0582 .6158 .5760 .6519
kFed 1 1.4 .5682 .0538 .5695 .5369 .6028
kFed 1 1.5 .5202 .0459 .5177 .4870 .5435
kFed 10 1 .8515 .0603 .8655 .7960 .8761
kFed 10 1.1 .8191 .0602 .8290 .7643 .8460
kFed 10 1.2 .7745 .0596 .7877 .7296 .8074
kFed 10 1.3 .7292 .0562 .7349 .6880 .7621
kFed 10 1.4 .6800 .0457 .6812 .6478 .7086
kFed 10 1.5 .6072 .0449 .6049 .5766 .6468
central any 1 .9549 .0012 .9549 .9549 .9549
central any 1.1 .9240 .0016 .9241 .9241 .9242
central any 1.2 .8880 .0024 .8889 .8867 .8891
central any 1.3 .8404 .0023 .8404 .8382 .8405
central any 1.4 .7849 .0045 .7844 .7822 .7871
central any 1.5 .7246 .0057 .7250 .7212 .7279
""")
"""ARI after 100 rounds on the plane, 50 rows a cluster (figures 3 and 8)."""


def _figure_8() -> dict[tuple[str, ...], Numbers]:
    """By method, beta, rows a cluster and noise."""
    with (HERE / "published" / "fkm_figure_8.csv").open(newline="", encoding="utf-8") as file:
        _, *lines = csv.reader(file)
    heads = ("mean", "sd", "median", "q25", "q75")
    return {tuple(line[:4]): dict(zip(heads, map(float, line[4:]), strict=True)) for line in lines}


MORE_ROWS = _figure_8()
"""As `PLANE`, 100 and 200 rows a cluster; made with the server of 2023 (figure 8)."""


def on_plane(method: str, beta: str, per_cluster: str, noise: str) -> Numbers:
    """Of figure 3 or 8; pooled rows, method central, are the same for each beta."""
    beta = "any" if method == "central" else beta
    if per_cluster == "50":
        return PLANE[method, beta, noise]
    return MORE_ROWS[method, beta, per_cluster, noise]


CURVES = _table("""
beta noise mean1 sd1 mean2 sd2 mean5 sd5 mean10 sd10 mean20 sd20 mean50 sd50 mean100 sd100
0.1 1 .9497 .0114 .9525 .0045 .9522 .0055 .9517 .0065 .9508 .0074 .9496 .0089 .9492 .0085
0.1 1.1 .9067 .0265 .9213 .0123 .9251 .0066 .9254 .0065 .9244 .0100 .9258 .0020 .9259 .0020
0.1 1.2 .8450 .0357 .8704 .0266 .8779 .0227 .8799 .0196 .8799 .0189 .8791 .0195 .8796 .0181
0.1 1.3 .7693 .0417 .8034 .0320 .8243 .0289 .8294 .0245 .8330 .0190 .8340 .0188 .8339 .0194
0.1 1.4 .6883 .0467 .7224 .0411 .7590 .0349 .7723 .0297 .7758 .0270 .7836 .0228 .7767 .0310
0.1 1.5 .6104 .0427 .6451 .0408 .6786 .0342 .6888 .0280 .6934 .0199 .6960 .0176 .6965 .0162
1 1 .9455 .0136 .9549 .0057 .9577 .0029 .9577 .0029 .9577 .0029 .9577 .0029 .9577 .0029
1 1.1 .8993 .0314 .9166 .0208 .9204 .0146 .9215 .0119 .9220 .0099 .9219 .0101 .9223 .0085
1 1.2 .8397 .0400 .8710 .0307 .8838 .0204 .8858 .0165 .8861 .0156 .8861 .0156 .8861 .0157
1 1.3 .7620 .0492 .8016 .0423 .8336 .0338 .8422 .0291 .8436 .0274 .8422 .0296 .8444 .0268
1 1.4 .6881 .0467 .7290 .0464 .7684 .0391 .7815 .0335 .7851 .0322 .7856 .0320 .7857 .0319
1 1.5 .6019 .0447 .6350 .0463 .6778 .0420 .6970 .0375 .7053 .0337 .7062 .0334 .7066 .0332
10 1 .9404 .0167 .9557 .0107 .9571 .0084 .9571 .0081 .9571 .0081 .9571 .0081 .9571 .0081
10 1.1 .8948 .0225 .9233 .0146 .9269 .0117 .9270 .0117 .9270 .0117 .9270 .0117 .9270 .0117
10 1.2 .8280 .0356 .8701 .0324 .8860 .0280 .8868 .0267 .8869 .0268 .8869 .0268 .8869 .0268
10 1.3 .7601 .0480 .8044 .0440 .8321 .0390 .8382 .0347 .8397 .0314 .8396 .0314 .8397 .0314
10 1.4 .6794 .0420 .7199 .0416 .7514 .0404 .7614 .0380 .7672 .0345 .7678 .0342 .7678 .0342
10 1.5 .6153 .0432 .6512 .0437 .6893 .0400 .7027 .0363 .7075 .0350 .7085 .0346 .7086 .0346
variable 1 .8561 .0462 .8863 .0514 .8976 .0525 .9009 .0526 .9011 .0526 .9017 .0525 .9016 .0525
""")
"""ARI of FKM after each round (figures 3d to 3f); beta "variable" is figure 5."""

ABLATION = _table("""
variant beta mean sd median q25 q75
paper 0.1 .9476 .0102 .9496 .9468 .9504
paper 1 .9579 .0081 .9574 .9574 .9613
paper 10 .9575 .0028 .9569 .9560 .9588
retain-empty 0.1 .9295 .0370 .9489 .9038 .9533
retain-empty 1 .9568 .0088 .9574 .9570 .9584
retain-empty 10 .9571 .0071 .9569 .9560 .9591
random-init 0.1 .9478 .0124 .9496 .9468 .9504
random-init 1 .9583 .0083 .9574 .9574 .9613
random-init 10 .9574 .0071 .9569 .9560 .9591
100-iterations 0.1 .9484 .0108 .9504 .9504 .9504
100-iterations 1 .9539 .0054 .9545 .9545 .9545
100-iterations 10 .9614 .0057 .9620 .9612 .9631
unweighted 0.1 .8328 .0317 .8483 .8138 .8551
unweighted 1 .9439 .0252 .9528 .9493 .9552
unweighted 10 .9526 .0179 .9560 .9532 .9588
all-four 0.1 .8601 .0550 .8572 .8272 .9038
all-four 1 .9488 .0226 .9565 .9531 .9565
all-four 10 .9590 .0001 .9591 .9588 .9591
all-but-iterations 0.1 .8088 .0596 .8135 .7626 .8486
all-but-iterations 1 .9438 .0273 .9553 .9491 .9572
all-but-iterations 10 .9546 .0133 .9560 .9560 .9588
""")
"""ARI after 100 rounds, noise 1, 50 rows a cluster, in the runs of 2024 (figure 4)."""

BOXES = _table("""
figure data method median q25 q75
1b 0.1 FKM .94961 .94680 .95044
1b 0.1 informed .90179 .85612 .91945
1b 0.1 kFed .65281 .58515 .70585
1b 1 FKM .95737 .95705 .96134
1b 1 informed .87031 .85038 .92781
1b 1 kFed .73024 .69461 .77469
1b 10 FKM .95691 .95601 .95908
1b 10 informed .86492 .85418 .93399
1b 10 kFed .85709 .79004 .87015
1b any central .95487 .95487 .95487
5b variable FKM .94849 .84838 .94994
5b variable kFed .86556 .83092 .88428
5b variable central .95162 .95162 .95162
6a femnist FKM .09382 .09032 .09724
6a femnist kFed .07914 .07437 .08210
6a femnist informed .08336 .07883 .08837
6a femnist central .10267 .10053 .10482
6b femnist FKM .23263 .23031 .23504
6b femnist kFed .19968 .19439 .20412
6b femnist informed .20272 .19864 .20674
6b femnist central .23298 .23079 .23501
""")
"""Boxes of the figures that have no numbers; kFed has K_l = 14 in 5b."""

CANCERS = _table("""
figure data method mean sd
7a iid FKM .2085 .0081
7a iid kFed .2019 .0060
7a iid central .2136 .0002
7b iid FKM .3249 .0062
7b iid kFed .3186 .0054
7b iid central .3292 .0002
7c non-iid FKM .2100 .0070
7c non-iid kFed .1906 .0099
7c non-iid central .2136 .0002
7d non-iid FKM .3255 .0060
7d non-iid kFed .3043 .0076
7d non-iid central .3292 .0002
""")
"""Silhouettes (7a, 7c) and simplified silhouettes of the four cancers."""

SITES = {
    "0.1": (185, 144, 194, 74, 203),
    "1": (174, 146, 187, 102, 191),
    "10": (200, 162, 140, 158, 140),
    "variable": (473, 10, 34, 173, 98),
    "femnist": (122, 126, 120, 126, 109, 122, 122, 114, 126, 123),
}
"""Rows of each client: on the plane by beta, in figure 5, and in figure 9."""
