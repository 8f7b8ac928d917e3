"""Remember: somebody says something, and it is kept where it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from memsvc.errors import WrongUse
from memsvc.ledger import jobs
from memsvc.memory import principals, remembered
from memsvc.memory.kept import keep
from memsvc.memory.principals import PrincipalKind
from memsvc.memory.remembered import NewMemory
from memsvc.model.memory import KINDS, STATUSES, Kind, Status
from memsvc.model.scope import is_storable
from memsvc.pipeline.embed import memory_job
from memsvc.service import work
from memsvc.service.app import App
from memsvc.service.where import target

LONGEST_TEXT = 100_000
# An index entry of the database holds no more of a session and a speaker together.
LONGEST_NAME_BYTES = 1000
LARGEST_ORDINAL = 2**63 - 1


@dataclass(frozen=True)
class RememberRequest:
    """
    What to remember, and what is known of it.

    `status` None means: a person's word is a fact, an agent's an inference. `session`, `ordinal` and `speaker` say
    where in a conversation it was said; `observed_at` when; `valid_from` and `valid_until` from when to when it is
    true.
    """

    text: str
    kind: Kind = "note"
    status: Status | None = None
    scope: str | None = None
    folder: Path | None = None
    session: str | None = None
    ordinal: int | None = None
    speaker: str | None = None
    observed_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class RememberResult:
    """The memory that stands for it; `created` is False when it was there before."""

    id: UUID
    created: bool
    text: str
    kind: Kind
    status: Status
    scope: str
    notes: tuple[str, ...]


def remember(app: App, request: RememberRequest) -> RememberResult:
    """
    Keep a statement. It can be found by its words at once, by meaning as soon as a worker has embedded it; on the
    embedded database, where no worker need run, that is done here.

    Raises:
        WrongUse: the text is blank or too long, or the times are in the wrong order.
        NotFound, Refused: there is no such scope, or the caller may not write there.
        Conflict: the idempotency key was used for another memory.
    """
    kept = keep(_checked(request).encode("utf-8", errors="replace"))
    notes = [f"secrets cut out: {len(kept.findings)}"] if kept.findings else []
    with app.pool.transaction(app.actor) as conn:
        scope = target(conn, request.scope, request.folder, host=app.host)
        author = principals.kind_of_caller(conn)
        new = NewMemory(
            scope_id=scope.id,
            text=kept.text,
            kind=request.kind,
            status=_status(request.status, author, notes),
            origin="human" if author == "person" else "agent",
            session=request.session,
            ordinal=request.ordinal,
            speaker=request.speaker,
            observed_at=request.observed_at,
            valid_from=request.valid_from,
            valid_until=request.valid_until,
            idempotency_key=request.idempotency_key,
        )
        found = remembered.remember(conn, new)
        if found.created:
            jobs.enqueue(conn, [(memory_job(found.source_id, found.id), scope.id)], priority=1)
        stored = remembered.get(conn, found.id)
    if found.created and app.is_embedded:
        work.work_one(app)
    text, kind, status = (stored.text, stored.kind, stored.status) if stored else (new.text, new.kind, new.status)
    return RememberResult(found.id, found.created, text, kind, status, str(scope), tuple(notes))


def _checked(request: RememberRequest) -> str:
    text = request.text.strip()
    if not text:
        raise WrongUse("there is nothing to remember: the text is empty")
    if len(text) > LONGEST_TEXT:
        raise WrongUse(
            f"the text has {len(text)} characters; {LONGEST_TEXT} is the most", mend="remember it in smaller statements"
        )
    if request.kind not in KINDS:
        raise WrongUse(f"{request.kind!r} is no kind", mend=f"choose one of {', '.join(KINDS)}")
    if request.status is not None and request.status not in STATUSES:
        raise WrongUse(f"{request.status!r} is no status", mend=f"choose one of {', '.join(STATUSES)}")
    if request.valid_from and request.valid_until and request.valid_until <= request.valid_from:
        raise WrongUse("valid_until does not come after valid_from")
    _check_place(request)
    return text


def _check_place(request: RememberRequest) -> None:
    """What the database can hold of where it was said."""
    for name in ("session", "speaker", "idempotency_key"):
        value: str | None = getattr(request, name)
        if value is not None and not is_storable(value, longest=LONGEST_NAME_BYTES):
            raise WrongUse(
                f"{name} is empty, holds what is no text, or is longer than {LONGEST_NAME_BYTES} bytes",
                mend="leave it out, or give a shorter name",
            )
    if request.ordinal is not None and not -LARGEST_ORDINAL <= request.ordinal <= LARGEST_ORDINAL:
        raise WrongUse(f"the ordinal {request.ordinal} is too large to be a place in a conversation")


def _status(claimed: Status | None, author: PrincipalKind, notes: list[str]) -> Status:
    """What the author may claim: a person's word makes a fact; what an agent wrote is an inference at best."""
    if author == "person":
        return claimed or "fact"
    if claimed in (None, "fact", "reported"):
        if claimed is not None:
            notes.append(f"kept as an inference: an agent's word does not make it {claimed}")
        return "inference"
    return claimed
