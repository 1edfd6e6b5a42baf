"""A federation over a network: its folders, its jobs, and what is shown of them."""
