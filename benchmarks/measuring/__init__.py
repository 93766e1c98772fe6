"""Measuring: processes, interleaved rounds, times, memory, the machine's peaks."""
