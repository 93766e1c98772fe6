"""Kinds of results that models make of texts: each file is the one place that knows its kind."""
