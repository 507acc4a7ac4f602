"""CSV: scan a file into ranges, infer types from all of them, parse each into rows and bad rows."""
