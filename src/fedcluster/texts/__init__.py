"""Texts that people read: tables and HTML, and what texts of other machines may hold."""
