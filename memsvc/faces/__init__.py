"""Thin faces over the service: they parse, call and print."""
