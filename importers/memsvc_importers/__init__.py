"""Readers of other tools' memory. Each sees only memsvc.errors, memsvc.model and memsvc.importer."""
