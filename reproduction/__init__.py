"""The experiments of the papers, one script a paper; `python -m reproduction` runs them all."""
