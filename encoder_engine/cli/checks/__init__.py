"""The checks of ``encoder-engine doctor``: machine, installation, model, accuracy."""
