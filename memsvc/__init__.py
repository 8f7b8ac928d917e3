"""memsvc: a portable memory service for coding agents that lives in Postgres."""

__version__ = "0.1.0"
