"""Secure sums: a coordinator learns sums of all sites, and nothing of a single one.

`_fixed_point` writes numbers as integers that add up, `_masks` hides them, `_cohort` says who takes
part on which terms, `_site` is a site's part and `_engine` that of the coordinator.
"""
