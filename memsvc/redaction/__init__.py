"""Secrets in texts: where they are, and the texts without them. Pure."""
