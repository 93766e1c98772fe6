"""Static embeddings: a text's vector is the mean of its tokens' rows in a table."""
