"""Pages: reports as one HTML file each."""
