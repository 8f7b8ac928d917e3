"""The one table from what went wrong to how each face says it."""

from __future__ import annotations

import psycopg

from memsvc.db.pool import reason
from memsvc.errors import DatabaseUnavailable, MemsvcError

FAILED, WRONG_USE, NOT_FOUND, REFUSED, CONFLICT = 1, 2, 3, 4, 5

EXIT_STATUS = {
    "failed": FAILED,
    "wrong-use": WRONG_USE,
    "not-found": NOT_FOUND,
    "refused": REFUSED,
    "conflict": CONFLICT,
    "ambiguous-source": CONFLICT,
    "bad-export": FAILED,
    "unknown-importer": WRONG_USE,
    "lease-lost": FAILED,
    "database-unavailable": FAILED,
    "wrong-major-version": FAILED,
    "missing-extension": FAILED,
    "not-migrated": FAILED,
    "migration-drift": CONFLICT,
    "embedder-unavailable": FAILED,
}


def known_error(exc: Exception) -> MemsvcError | None:
    """What a caller is told of an exception: never SQL, never a stack trace; None for what nobody foresaw."""
    if isinstance(exc, MemsvcError):
        return exc
    if isinstance(exc, psycopg.errors.QueryCanceled):
        return MemsvcError("the database took too long and was stopped", mend="try again, or ask for less at a time")
    if isinstance(exc, psycopg.errors.DiskFull):
        return MemsvcError(
            f"the database has no room left: {reason(exc)}", mend="make room on its disk, then try again"
        )
    if isinstance(exc, psycopg.errors.LockNotAvailable):
        return MemsvcError("something else is at work there for too long, such as another import", mend="try again")
    if isinstance(exc, psycopg.OperationalError):
        return DatabaseUnavailable(f"the database went away: {reason(exc)}", mend="memsvc doctor")
    if isinstance(exc, psycopg.errors.InsufficientPrivilege):
        return MemsvcError("the database refused this to the caller", mend="memsvc doctor")
    if isinstance(exc, psycopg.Error):
        return MemsvcError(f"the database refused: {type(exc).__name__}", mend="memsvc doctor")
    if isinstance(exc, OSError):
        return MemsvcError(f"{exc.filename or 'the system'}: {exc.strerror or exc}")
    return None
