"""Federations over a network: their folders, their sites' membership, and their messages."""
