"""Jobs that embed files into stored vectors: in constant memory, resumable, on many processes."""
