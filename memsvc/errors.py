"""What can go wrong in a way that a caller can act on."""


class MemsvcError(Exception):
    """
    The root of all errors that memsvc raises on purpose.

    Each child has a stable `code`; `mend` is the command or the change that makes it go away, when there is one.
    """

    code = "failed"

    def __init__(self, message: str, *, mend: str | None = None) -> None:
        super().__init__(message)
        self.mend = mend


class WrongUse(MemsvcError):
    """An argument or a setting that cannot be meant."""

    code = "wrong-use"


class NotFound(MemsvcError):
    """No such thing, or none that the caller may see: the two answers are the same."""

    code = "not-found"


class Refused(MemsvcError):
    """The caller may not do this."""

    code = "refused"


class Conflict(MemsvcError):
    """The store holds something that does not fit with what was asked."""

    code = "conflict"


class AmbiguousSource(Conflict):
    """An export fits several known sources."""

    code = "ambiguous-source"


class BadExport(MemsvcError):
    """A file or folder that is not an export the importer can read."""

    code = "bad-export"


class UnknownImporter(WrongUse):
    """No importer of that name is installed."""

    code = "unknown-importer"


class LeaseLost(MemsvcError):
    """Somebody else owns the job now; the work of the old owner must be rolled back."""

    code = "lease-lost"


class DatabaseUnavailable(MemsvcError):
    """The database cannot be started or reached."""

    code = "database-unavailable"


class WrongMajorVersion(DatabaseUnavailable):
    """The data folder belongs to another major version of PostgreSQL."""

    code = "wrong-major-version"


class MissingExtension(DatabaseUnavailable):
    """The server has no pgvector, or one that is too old."""

    code = "missing-extension"


class NotMigrated(MemsvcError):
    """The schema is absent or older than this program."""

    code = "not-migrated"


class MigrationDrift(Conflict):
    """A migration that was applied is not the one that this program carries."""

    code = "migration-drift"


class EmbedderUnavailable(MemsvcError):
    """A model cannot be loaded, or is not the one that was recorded."""

    code = "embedder-unavailable"
