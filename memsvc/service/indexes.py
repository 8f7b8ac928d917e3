"""Indexes over vectors: built by whoever may, when a store has grown enough to want them."""

from __future__ import annotations

import logging

import psycopg

from memsvc.embedding import indexes
from memsvc.errors import DatabaseUnavailable
from memsvc.service.app import App

logger = logging.getLogger(__name__)


def due(app: App) -> list[str]:
    """The models whose vectors want an index and have none."""
    with app.pool.transaction(app.actor) as conn:
        return [model.name for model in indexes.due(conn)]


def build(app: App) -> list[str]:
    """
    Build what is due, with the admin login where there is one; returns the models that have an index now.

    Raises:
        DatabaseUnavailable: the login may not become the schema's owner, or the server did not build it.
    """
    with app.pool.transaction(app.actor) as conn:
        wanted = indexes.due(conn)
    conninfo = app.settings.admin_database_url or app.database_url
    try:
        return [model.name for model in wanted if indexes.build(conninfo, model)]
    except psycopg.Error as exc:
        raise DatabaseUnavailable(
            f"the index over vectors could not be built: {type(exc).__name__} {exc.sqlstate or ''}".strip(),
            mend="memsvc doctor, then memsvc migrate",
        ) from exc


def build_if_allowed(app: App) -> None:
    """After new vectors came: build what is due. Without the right to, recall is slower and doctor says the command."""
    try:
        for model in build(app):
            logger.info("built the index over the vectors of %s", model)
    except DatabaseUnavailable as exc:
        logger.warning("no index over vectors: %s", exc)
