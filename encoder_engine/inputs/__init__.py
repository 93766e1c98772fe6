"""Reads files of texts as rows: where files are, their formats, and errors that name the row."""
