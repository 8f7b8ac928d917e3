"""The database: where it runs, how it is reached, which migrations it has."""
