"""Files of texts as rows: sources, formats, refusals that name the row."""
