"""The names that options take."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Algorithm", "DecimalSign", "Init", "Quality"]


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


class DecimalSign(StrEnum):
    """What ``--decimal`` takes."""

    POINT = "."
    COMMA = ","
