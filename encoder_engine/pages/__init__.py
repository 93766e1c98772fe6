"""Reports and other pages, each written as a single HTML file."""
