"""Files of texts in, stored vectors out: in constant memory, resumable, by one process or many."""
