"""Model families as data: specifications of encoders, tensor names and config.json keys."""
