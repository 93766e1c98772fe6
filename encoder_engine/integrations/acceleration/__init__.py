"""Replaces the computation of other libraries' models in place, and puts it back."""
