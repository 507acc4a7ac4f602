"""SQL queries at a stated freshness."""
