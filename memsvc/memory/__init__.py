"""Session outputs and the memories derived from them."""
