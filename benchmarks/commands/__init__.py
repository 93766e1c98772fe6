"""Commands beside run, compare and report: the GPU table, tuning, profiles, the front door."""
