"""SQL statements: parsed, judged, allowed or refused before they run."""
