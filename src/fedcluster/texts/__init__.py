"""Texts for people: tables and HTML, and checks of texts from other machines."""
