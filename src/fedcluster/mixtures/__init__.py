"""Mixtures fitted at the server, without a round, to leaves that describe the rows."""
