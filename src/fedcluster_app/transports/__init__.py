"""Transports that carry messages between a coordinator and its sites."""
