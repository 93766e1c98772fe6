"""Most downloaded repositories of encoders: what loads, what is refused, and why."""
