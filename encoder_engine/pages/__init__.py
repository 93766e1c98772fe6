"""Reports and other pages, as one HTML file each."""
