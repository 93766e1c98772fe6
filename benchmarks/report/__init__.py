"""The report: what was measured, as one page that people decide by."""
