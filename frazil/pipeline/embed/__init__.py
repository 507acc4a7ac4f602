"""Embeddings as data: the job that gives every chunk of a searched table its vector, as rows of a table beside it."""
