"""Fine-tuning tasks: each reads rows, makes targets, and defines head, loss and decoding."""
