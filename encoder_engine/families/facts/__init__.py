"""The fields of encoder specifications, and readers of the config.json keys that set them."""
