"""One vector per sequence."""
