"""
The import of what has been imported: the same export again, into a source that is still as that import left it.

Then every row would be found unchanged, so that none has to be read; the report says what the earlier one says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from memsvc.db.pool import Conn
from memsvc.derivation import derive, handbook
from memsvc.memory import runs, sources, statements
from memsvc.memory.runs import Earlier
from memsvc.model.report import IngestReport, MemoryTally, RejectedRow, Tally
from memsvc.redaction import redact

CUT_OUT = "secrets cut out: "
"""How the warning begins that tells of secrets in what was new; it is not repeated."""

_RULES = (derive.RULES, handbook.RULES, redact.RULES)


def request_sha256(importer: str, path: Path, digest: bytes | None, *, host: str, label: str | None) -> bytes | None:
    """What an import depends on besides the database: what is asked, the export's bytes, and the rules it goes by."""
    if digest is None:
        return None
    asked = (importer, str(path.absolute()), digest.hex(), host, label, version("memsvc"), *_RULES)
    return hashlib.sha256(json.dumps(asked).encode()).digest()


def find(conn: Conn, request: bytes) -> Earlier | None:
    """
    The earlier run that this import would only repeat, if there is one; holds the source's lock then.

    What came between the two, an import of a newer export or the loss of a row, has changed the state of the source.
    """
    earlier = runs.earlier(conn, request)
    if earlier is None:
        return None
    sources.lock_id(conn, earlier.source_id)
    return earlier if runs.state_sha256(conn, earlier.source_id) == earlier.state_sha256 else None


def report(conn: Conn, earlier: Earlier) -> IngestReport:
    """What there is to say of an import that finds everything as the earlier run left it."""
    return IngestReport(
        source=earlier.label,
        stores=tuple(earlier.stores),
        outputs=_unchanged(earlier.counts["outputs"]),
        jobs=_unchanged(earlier.counts["jobs"]),
        threads=_unchanged(earlier.counts["threads"]),
        files=_unchanged(earlier.counts["files"]),
        memories=MemoryTally(unchanged=statements.count_current(conn, earlier.source_id)),
        rejected=[RejectedRow(**row) for row in earlier.failures],
        warnings=[warning for warning in earlier.warnings if not warning.startswith(CUT_OUT)],
    )


def _unchanged(counts: Mapping[str, int]) -> Tally:
    same = counts["inserted"] + counts["updated"] + counts["unchanged"]
    return Tally(unchanged=same, older=counts["older"], rejected=counts["rejected"])
