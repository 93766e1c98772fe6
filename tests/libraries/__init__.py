"""Calls of other libraries beside the engine's."""
