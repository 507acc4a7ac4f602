"""Trials: indexes and models measured on a table's own vectors, journalled as rows, and the winner under a rule.

A child that measures imports what it measures and nothing more, so the front door imports nothing by itself.
"""
