"""A site in a federation: its file, its membership and permits, its log, and its worker process."""
