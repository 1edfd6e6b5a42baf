"""The site's own filters on what leaves, and what they cost."""

from fedcluster.privacy.limits import MinClusterSize, MinRows
from fedcluster.privacy.persons import Persons, Tally

__all__ = ["MinClusterSize", "MinRows", "Persons", "Tally"]
