"""Graphs as text: printing in canonical form, and reading it back."""
