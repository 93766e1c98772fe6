"""The report: all results on one page, for people who must choose a tool."""
