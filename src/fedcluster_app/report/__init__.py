"""Results in words, tables, pictures and pages, for a screen, a notebook or a browser."""
