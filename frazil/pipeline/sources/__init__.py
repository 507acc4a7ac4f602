"""Bulk sources: CSV files and Postgres tables."""
