"""The targets for speed and memory, and the recorded quantities that they are compared with."""
