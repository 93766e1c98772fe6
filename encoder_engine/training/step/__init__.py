"""Takes a training step: gradients over micro-batches, CUDA graphs, and numbers read late."""
