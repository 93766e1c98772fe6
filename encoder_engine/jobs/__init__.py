"""Jobs that compute stored results (vectors, scores, ...) of files of texts.

They run in constant memory, are resumable, and use several processes.
"""
