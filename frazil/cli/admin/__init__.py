"""Verbs of administrators: tokens, journal, repair, catalog, benchmarks."""
