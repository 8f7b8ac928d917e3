"""Text to vectors: the models, and the tables that hold what they made."""
