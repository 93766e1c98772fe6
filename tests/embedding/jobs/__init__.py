"""Models in other processes: loaded again, or pickled."""
