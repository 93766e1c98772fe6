"""What a model directory says about turning text into vectors."""
