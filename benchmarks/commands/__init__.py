"""Commands other than run, compare and report: the GPU run, tuning, profiles, the front door."""
