"""Verbs that run the product: up, serve, demo, doctor, status."""
