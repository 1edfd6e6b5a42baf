"""Attacks on one site, played on its own machine: what questions read of its rows.

A coordinator that asks anything is played against the site as it is configured, through the bytes
that travel, so that refusals count; nothing is sent. An attack knows what is public (columns,
their ranges and steps, lists of texts) and what the site answers. The rows themselves are used to
count how much of them an attack read, and for that alone.
"""
