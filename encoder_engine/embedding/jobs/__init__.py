"""Jobs over files: the parts of a model that they use, and their keywords."""
