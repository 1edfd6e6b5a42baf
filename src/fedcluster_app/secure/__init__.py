"""Secure sums: a coordinator learns only sums over all sites, and nothing about a single one.

`cohort` defines the participating sites and their terms, `_masks` turns numbers into masked
integers that can be added, `site` is the site's part and `engine` the coordinator's.
"""
