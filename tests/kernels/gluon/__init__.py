"""Kernels in Gluon, simulated on a CPU and held to the order of their machine code."""
