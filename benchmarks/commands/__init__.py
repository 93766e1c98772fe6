"""Commands beside compare and report: the run on a GPU, and measuring and printing one case."""
