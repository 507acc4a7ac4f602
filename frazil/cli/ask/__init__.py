"""Verbs that ask: SQL and search."""
