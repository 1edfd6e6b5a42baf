"""Secure sums: a coordinator learns sums of all sites, and nothing of a single one.

`cohort` says which sites take part on which terms, `_masks` turns numbers into masked integers that
add up, `site` is the part of a site and `engine` that of the coordinator.
"""
