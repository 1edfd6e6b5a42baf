"""Attacks on one site, run on its own machine: what questions reveal about its rows.

A coordinator that asks anything is simulated against the site as configured, using the same bytes
as over a network, so that refusals count; nothing is sent. An attack knows what is public (columns,
their ranges and steps, lists of texts) and the site's answers. The rows themselves are only used to
count how many an attack read.
"""
