"""Real clients of embedding services, each in an environment of its own."""
