"""Commands other than run, compare and report: the GPU run, the front door."""
