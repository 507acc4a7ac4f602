"""SQL in walled workers: judged, shown its tables, run and written down, in a process that can be killed."""
