"""Commands other than run, compare and report: the GPU run, profiles, the front door."""
