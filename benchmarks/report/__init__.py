"""The report: the newest results on one page, for people who must choose a tool."""
