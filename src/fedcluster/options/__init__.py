"""Choices of users: names of algorithms and rules, and combinations that are refused."""
