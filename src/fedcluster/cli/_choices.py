"""The names that options take."""

from __future__ import annotations

from enum import StrEnum


class Algorithm(StrEnum):
    """The names that ``--algorithm`` takes."""

    AUTO = "auto"
    LLOYD = "lloyd"
    FKM = "fkm"
    KFED = "kfed"
    FEDAVG = "fedavg"
    FCM = "fcm"
    FFCM = "ffcm"


class Quality(StrEnum):
    """The names that ``--quality`` takes."""

    GOOD = "good"
    BETTER = "better"
    BEST = "best"


class Init(StrEnum):
    """The names that ``--init`` takes."""

    AUTO = "auto"
    SUMMARIES = "summaries"
    SUMS = "sums"
    KMEANS = "k-means++"
    RANDOM = "random"


class RuleName(StrEnum):
    """The names that ``--rule`` takes."""

    VOTE = "vote"
    MIXTURE_BIC = "mixture-bic"
    BIC = "bic"
    GAP = "gap"
    CALINSKI_HARABASZ = "calinski-harabasz"
    SQUARED_SILHOUETTE = "squared-silhouette"
    SIMPLIFIED_SILHOUETTE = "simplified-silhouette"
    DAVIES_BOULDIN = "davies-bouldin"
    XIE_BENI = "xie-beni"
    FUZZY_DB = "fuzzy-db"
    INERTIA = "inertia"


class AveragingName(StrEnum):
    """The names that ``--averaging`` takes."""

    AVG_1 = "avg_1"
    AVG_2 = "avg_2"


class DecimalSign(StrEnum):
    """What ``--decimal`` takes."""

    POINT = "."
    COMMA = ","
