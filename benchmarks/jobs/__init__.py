"""Code that cases share, a module for each kind of work, and the gates that judge outputs."""
