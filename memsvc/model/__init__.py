"""Values that travel between the floors. Frozen, built once at the edge, then trusted."""
