"""
The indexes over vectors: one a model, built when there are too many vectors to compare them one by one.

An HNSW graph (pgvector's) over a cast to the model's dimension, of that model's vectors alone. The search functions of
the schema know it by its name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from psycopg import sql
from psycopg.conninfo import make_conninfo

from memsvc.db import migrate, queries
from memsvc.db.pool import Conn

SQL = queries.load(__file__)

# Up to here memsvc.vector_candidates compares one by one, which is exact.
THRESHOLD = 10_000
# The everyday limits of a login are not meant for this. A graph that does not fit the memory is built several times
# slower; helpers would want it as shared memory, of which a container often has 64 MB.
BUILDING = {
    "role": "memsvc_owner",
    "search_path": "memsvc,extensions,public",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "maintenance_work_mem": "1GB",
    "max_parallel_maintenance_workers": "0",
}


@dataclass(frozen=True)
class Model:
    """A model whose vectors want an index: its name and the length of its vectors."""

    name: str
    dimension: int


def due(conn: Conn) -> list[Model]:
    """The models that have more vectors than are compared one by one, and no index yet: as far as the caller sees."""
    return [Model(*row) for row in conn.execute(SQL["due"], {"threshold": THRESHOLD}).fetchall()]


def build(conninfo: str, model: Model) -> bool:
    """
    Build the model's index while reading and writing go on; False when another process is at it.

    It takes a connection of its own, to the server itself or to a pooler in session mode, and a login that may become
    the schema's owner.

    Raises:
        DatabaseUnavailable: the server cannot be reached, or the login may not become the owner.
    """
    options = " ".join(f"-c {name}={value}" for name, value in BUILDING.items())
    with migrate.connect(make_conninfo(conninfo, options=options)) as conn:
        claimed = conn.execute(SQL["claim"], {"model": model.name}).fetchone()
        if claimed is None or not claimed[0]:
            return False
        name = sql.Identifier("chunk_embeddings_hnsw_" + hashlib.md5(model.name.encode()).hexdigest())  # noqa: S324
        # A build that was cut short leaves an index that no query uses and every write keeps up.
        conn.execute(sql.SQL("drop index concurrently if exists memsvc.{}").format(name))
        conn.execute(
            sql.SQL(
                "create index concurrently {} on memsvc.chunk_embeddings"
                " using hnsw ((embedding::halfvec({})) halfvec_cosine_ops) where model = {}"
            ).format(name, sql.Literal(model.dimension), sql.Literal(model.name))
        )
    return True
