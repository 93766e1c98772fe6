"""Training of WordPiece and Unigram vocabularies."""
