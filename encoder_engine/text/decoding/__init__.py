"""Token ids back to text."""
