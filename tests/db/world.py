"""Two tenants of equal ids, their scopes, and principals with every kind of grant: what the policies are tried on."""

from __future__ import annotations

from typing import Any, LiteralString
from uuid import UUID, uuid5

import psycopg
from psycopg import sql

from memsvc.db.pool import Conn
from memsvc.embedding.hashing import HashingEmbedder
from memsvc.model.principal import DEFAULT_TENANT, GLOBAL_SCOPE, LOCAL_SOURCE, Actor

NAMES = UUID("6f3c1f8e-0000-4000-8000-000000000000")
OTHER_TENANT = UUID("00000000-0000-4000-8000-0000000000ff")
TENANTS = (DEFAULT_TENANT, OTHER_TENANT)


def fixed(name: str) -> UUID:
    """The same id in every tenant."""
    return uuid5(NAMES, name)


# A client with two projects, and a project of nobody.
SCOPES: dict[str, UUID] = {"global": GLOBAL_SCOPE} | {
    name: fixed(name) for name in ("acme", "anvil", "rocket", "garden")
}
KINDS = {"global": "global", "acme": "client"}
PARENTS = {"anvil": "acme", "rocket": "acme"}
EVERYWHERE = set(SCOPES)
OF_ACME = {"acme", "anvil", "rocket"}

# scope, rights, descends; and in the other tenant everybody of the same id is an admin of everything.
GRANTS: dict[str, tuple[str, str, bool] | None] = {
    "reads anvil": ("anvil", "read", True),
    "writes anvil": ("anvil", "write", True),
    "keeps anvil": ("anvil", "admin", True),
    "reads acme and below": ("acme", "read", True),
    "reads acme alone": ("acme", "read", False),
    "writes acme and below": ("acme", "write", True),
    "writes acme alone": ("acme", "write", False),
    "reads everything": ("global", "read", True),
    "reads global alone": ("global", "read", False),
    "writes everything": ("global", "write", True),
    "writes global alone": ("global", "write", False),
    "keeps everything": ("global", "admin", True),
    "keeps global alone": ("global", "admin", False),
    "has no grant": None,
    "is disabled": ("global", "admin", True),
}
READS = {
    "reads anvil": {"anvil"},
    "writes anvil": {"anvil"},
    "keeps anvil": {"anvil"},
    "reads acme and below": OF_ACME,
    "reads acme alone": {"acme"},
    "writes acme and below": OF_ACME,
    "writes acme alone": {"acme"},
    "reads everything": EVERYWHERE,
    "reads global alone": {"global"},
    "writes everything": EVERYWHERE,
    "writes global alone": {"global"},
    "keeps everything": EVERYWHERE,
    "keeps global alone": {"global"},
}
PRINCIPALS = sorted(GRANTS)

# One row of a scope in each table that has scopes; %(n)s makes it another row.
INSERTS: dict[str, LiteralString] = {
    "memories": """
        insert into memsvc.memories (
            tenant_id, id, scope_id, kind, status, origin, text, text_sha256, author_id, source_id)
        values (%(tenant)s, %(memory)s, %(scope)s, 'note', 'inference', 'agent', %(text)s || %(n)s,
            sha256(%(n)s::bytea), %(author)s, %(source)s)""",
    "evidence": """
        insert into memsvc.evidence (tenant_id, memory_id, scope_id, kind, locator, sha256, quote, added_by)
        values (%(tenant)s, %(first)s, %(scope)s, 'session_output', '{}', '', %(text)s || %(n)s, %(author)s)""",
    "reviews": """
        insert into memsvc.reviews (tenant_id, memory_id, scope_id, verdict, reviewer_id, note)
        values (%(tenant)s, %(first)s, %(scope)s, 'dispute', %(author)s, %(text)s || %(n)s)""",
    "chunks": """
        insert into memsvc.chunks (tenant_id, scope_id, memory_id, view, starts_at, ends_at, text_sha256)
        values (%(tenant)s, %(scope)s, %(first)s, 'own', %(n)s::integer, 1000, '')""",
    "chunk_embeddings": """
        insert into memsvc.chunk_embeddings (
            tenant_id, scope_id, model, memory_id, view, starts_at, ends_at, dimension, embedding)
        values (%(tenant)s, %(scope)s, 'model ' || %(n)s, %(first)s, 'own', 1, 1000, 2, '[1,2]')""",
    "stage1_outputs": """
        insert into memsvc.stage1_outputs (
            tenant_id, source_id, store, thread_id, scope_id, source_updated_at, raw_memory, rollout_summary,
            generated_at, raw_memory_sha256, rollout_summary_sha256, row_sha256)
        values (%(tenant)s, %(source)s, 'v1', %(text)s || %(n)s, %(scope)s, now(), %(text)s, %(text)s, now(),
            '', '', '')""",
    "threads": """
        insert into memsvc.threads (tenant_id, source_id, id, scope_id, found_in, row_sha256)
        values (%(tenant)s, %(source)s, %(text)s || %(n)s, %(scope)s, 'state', '')""",
    "jobs": """
        insert into memsvc.jobs (
            tenant_id, source_id, store, kind, job_key, scope_id, status, retry_remaining, not_before)
        values (%(tenant)s, %(source)s, 'memsvc', 'embed', %(text)s || %(n)s, %(scope)s, 'pending', 3, now())""",
    "scope_aliases": """
        insert into memsvc.scope_aliases (tenant_id, kind, value, scope_id)
        values (%(tenant)s, 'explicit', %(text)s || %(n)s, %(scope)s)""",
}
# Rows without a scope: of the tenant as a whole.
TENANT_ROWS: dict[str, LiteralString] = {
    "jobs": """
        insert into memsvc.jobs (tenant_id, source_id, store, kind, job_key, status, retry_remaining)
        values (%(tenant)s, %(source)s, 'state_5', 'old', 'of the tenant', 'running', 1)""",
    "job_attempts": """
        insert into memsvc.job_attempts (
            tenant_id, source_id, store, kind, job_key, ownership_token, started_at, outcome)
        values (%(tenant)s, %(source)s, 'state_5', 'old', 'of the tenant', 'token', now(), 'lost')""",
    "import_runs": """
        insert into memsvc.import_runs (tenant_id, source_id, path) values (%(tenant)s, %(source)s, '/secret')""",
    "consolidation_progress": """
        insert into memsvc.consolidation_progress (tenant_id, source_id, store, max_thread_count)
        values (%(tenant)s, %(source)s, 'v1', 1)""",
    "import_rejects": """
        insert into memsvc.import_rejects (
            tenant_id, source_id, store, table_name, row_key, row_sha256, reason, row_values)
        values (%(tenant)s, %(source)s, 'v1', 't', 'k', '', 'r', '{}')""",
    "stage1_originals": """
        insert into memsvc.stage1_originals (
            tenant_id, source_id, store, table_name, row_key, column_name, original)
        values (%(tenant)s, %(source)s, 'v1', 't', 'k', 'c', 'secret')""",
    "source_files": """
        insert into memsvc.source_files (tenant_id, source_id, path, sha256, content)
        values (%(tenant)s, %(source)s, 'p', '', 'secret')""",
}
EMBEDDER = HashingEmbedder(8)


def actor(who: str) -> Actor:
    return Actor(DEFAULT_TENANT, fixed(who))


def memory_id(scope: str, n: str = "1") -> UUID:
    return fixed(f"memory {n} of {scope}")


def row(who: str, scope: str, n: str = "1", *, tenant: UUID = DEFAULT_TENANT) -> dict[str, Any]:
    """The values of INSERTS and TENANT_ROWS; `first` is the memory that is there already."""
    return {
        "tenant": tenant,
        "scope": SCOPES[scope],
        "author": fixed(who),
        "source": LOCAL_SOURCE,
        "memory": memory_id(scope, n),
        "first": memory_id(scope),
        "text": f"{tenant} {scope} shared ",
        "n": n,
    }


def fill(conn: Conn) -> None:
    for tenant in TENANTS:
        add_tenant(conn, tenant)
        for who, grant in GRANTS.items():
            add_principal(conn, tenant, who)
            theirs = grant if tenant == DEFAULT_TENANT else ("global", "admin", True)
            if theirs is not None:
                add_grant(conn, tenant, who, theirs)
        for name, dimension in (("model 1", 2), ("model 2", 2), (EMBEDDER.model, 8)):
            add = "insert into memsvc.embedding_models (tenant_id, name, dimension, max_tokens) values (%s, %s, %s, 9)"
            conn.execute(add, [tenant, name, dimension])
        for name in SCOPES:
            for statement in INSERTS.values():
                conn.execute(statement, row("keeps everything", name, tenant=tenant))
        for statement in TENANT_ROWS.values():
            conn.execute(statement, row("keeps everything", "global", tenant=tenant))
    add_memory_of_the_other_tenant_alone(conn)
    name_users(conn)


def add_tenant(conn: Conn, tenant: UUID) -> None:
    """The default tenant is there, with its global scope and its local source."""
    ours = "on conflict do nothing"
    conn.execute(f"insert into memsvc.tenants (id, name) values (%s, %s) {ours}", [tenant, str(tenant)])
    conn.execute(
        f"insert into memsvc.sources (tenant_id, id, importer, label) values (%s, %s, 'memsvc', 'local') {ours}",
        [tenant, LOCAL_SOURCE],
    )
    for name, scope in SCOPES.items():
        parent = SCOPES[PARENTS[name]] if name in PARENTS else None
        conn.execute(
            f"insert into memsvc.scopes (tenant_id, id, kind, name, parent_id) values (%s, %s, %s, %s, %s) {ours}",
            [tenant, scope, KINDS.get(name, "project"), name, parent],
        )


def add_memory_of_the_other_tenant_alone(conn: Conn) -> None:
    """Its id is not that of any memory here, but its scope's is that of one."""
    theirs = row("keeps everything", "anvil", "9", tenant=OTHER_TENANT) | {"first": memory_id("anvil", "9")}
    conn.execute(INSERTS["memories"], theirs)
    for table in ("chunks", "chunk_embeddings"):
        conn.execute(INSERTS[table], theirs | {"n": "1"})


def add_principal(conn: Conn, tenant: UUID, who: str) -> None:
    conn.execute(
        "insert into memsvc.principals (tenant_id, id, kind, name, disabled_at)"
        " values (%s, %s, 'agent', %s, case when %s then now() end)",
        [tenant, fixed(who), who, who == "is disabled" and tenant == DEFAULT_TENANT],
    )


def add_grant(conn: Conn, tenant: UUID, who: str, grant: tuple[str, str, bool]) -> None:
    name, rights, descends = grant
    conn.execute(
        "insert into memsvc.grants (tenant_id, principal_id, scope_id, rights, descends) values (%s, %s, %s, %s, %s)",
        [tenant, fixed(who), SCOPES[name], rights, descends],
    )


def name_users(conn: Conn) -> None:
    """Anna belongs to both tenants, Bert to the other one, Carl is disabled."""
    for tenant, who, user in (
        (DEFAULT_TENANT, "reads everything", "anna"),
        (OTHER_TENANT, "reads everything", "anna"),
        (OTHER_TENANT, "reads anvil", "bert"),
        (DEFAULT_TENANT, "is disabled", "carl"),
    ):
        named = "update memsvc.principals set auth_user_id = %s where tenant_id = %s and id = %s"
        conn.execute(named, [user, tenant, fixed(who)])


def written(vector: list[float]) -> str:
    return "[" + ",".join(map(str, vector)) + "]"


def takes(conn: Conn, statement: LiteralString | sql.Composed, values: Any) -> bool:
    """Does the statement touch a row? Nothing stays of it."""
    try:
        with conn.transaction(force_rollback=True):
            return conn.execute(statement, values).rowcount > 0
    except psycopg.errors.InsufficientPrivilege:
        return False


def count(conn: Conn, table: str) -> int:
    # A name of a column, and not *: not every column of every table is granted.
    column = sql.Identifier("id" if table == "tenants" else "tenant_id")
    query = sql.SQL("select count({}) from memsvc.{}").format(column, sql.Identifier(table))
    ((number,),) = conn.execute(query).fetchall()
    assert isinstance(number, int)
    return number


def scopes_seen(conn: Conn, table: str, column: str = "scope_id") -> set[UUID]:
    return _column(conn, table, column) - {None}


def tenants_seen(conn: Conn, table: str) -> set[UUID]:
    return _column(conn, table, "tenant_id")


def _column(conn: Conn, table: str, column: str) -> set[Any]:
    query = sql.SQL("select {} from memsvc.{}").format(sql.Identifier(column), sql.Identifier(table))
    return {value for (value,) in conn.execute(query).fetchall()}


def rows_as_text(conn: Conn, table: str) -> str:
    query = sql.SQL("select coalesce(string_agg(t::text, ' '), '') from memsvc.{} t").format(sql.Identifier(table))
    ((text,),) = conn.execute(query).fetchall()
    return str(text)


def as_admin(conn: Conn) -> None:
    """Lay the role down: the login of the tests is a superuser."""
    conn.execute("set local role none")
