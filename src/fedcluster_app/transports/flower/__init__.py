"""Flower (flwr) as the transport; only this package imports Flower or knows its programs.

A coordinator runs Flower's SuperLink and its ServerApp; a site is one of Flower's nodes, without a
program of Flower's. Sites only connect outwards. ``test_flower_contract.py`` lists everything that
is relied on.
"""
