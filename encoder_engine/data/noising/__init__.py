"""Makes training rows from plain text: noised texts (T5, BART), query-document pairs (ORQA)."""
