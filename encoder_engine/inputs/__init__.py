"""Reads files of texts as rows: sources, formats, and errors that name the row."""
