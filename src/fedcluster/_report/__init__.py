"""Results in words, tables and pictures; how they look on a terminal is not known here."""
