"""Verbs that bring data in and out: publish, ingest, export, jobs."""
