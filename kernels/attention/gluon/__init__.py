"""Attention in Gluon for Hopper: warps with parts of their own, TMA, and wgmma under way."""
