"""Facts that specifications state, and the ways in which configurations spell them."""
