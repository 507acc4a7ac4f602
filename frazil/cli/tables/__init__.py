"""Verbs about tables: declare, describe, history, dead letters, maintenance."""
