"""Long runs against a server, and searches for faults."""
