"""What is done on a GPU: the plan, and the processes of its steps."""
