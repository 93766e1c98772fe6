"""One file per family of encoders: data only."""
