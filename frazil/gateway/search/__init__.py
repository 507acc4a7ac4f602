"""Search behind the gateway: which generation of each table answers, and how the next one takes its place."""
