"""What an encoder is trained to do: which tokens are hidden or changed, and the loss of it."""
