"""The run on a GPU: its plan, and the processes of its steps."""
