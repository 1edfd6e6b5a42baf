"""Flower (flwr) as the transport: the only package that imports Flower or knows its programs.

A coordinator runs Flower's SuperLink and its ServerApp, a site Flower's SuperNode; sites only
connect outwards.
"""
