"""Verbs that prepare search: embeddings, builds, artifacts, profiles, trials, quack."""
