"""Ingest: one writer per table, from a request to a durable receipt."""
