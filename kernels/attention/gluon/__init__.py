"""Attention in Gluon for Hopper: warps with roles of their own, TMA, and asynchronous wgmma."""
