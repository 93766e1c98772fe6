"""Reading and writing of checkpoints in Hugging Face layout."""
