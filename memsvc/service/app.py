"""The application: settings, who acts, the pool and the embedder, wired once and opened when first needed."""

from __future__ import annotations

import os
import socket
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from memsvc.db import migrate
from memsvc.db.pool import Pool
from memsvc.errors import Refused
from memsvc.model.principal import OWNER, Actor
from memsvc.settings import Settings

if TYPE_CHECKING:
    from memsvc.embedding.embedder import Embedder


class App:
    """What every verb of the service works with. A context manager: leaving it closes the connections."""

    def __init__(self, settings: Settings, *, actor: Actor | None = None, host: str | None = None) -> None:
        self.settings = settings
        self.host = host or socket.gethostname()
        self._actor = actor

    @property
    def actor(self) -> Actor:
        """
        Who acts: the owner of the machine, unless a key says otherwise.

        Raises:
            Refused: there is a key in the environment, and it is not one of this installation.
        """
        if self._actor is None:
            if os.environ.get("MEMSVC_API_KEY"):
                raise Refused("the key in MEMSVC_API_KEY is not known here", mend="unset MEMSVC_API_KEY")
            self._actor = OWNER
        return self._actor

    @property
    def is_embedded(self) -> bool:
        """Is the database our own server, started on first use?"""
        return self.settings.database_url is None

    @cached_property
    def database_url(self) -> str:
        """
        Where the database is; the embedded one is started for it.

        Raises:
            DatabaseUnavailable: it cannot be started.
        """
        if self.settings.database_url is not None:
            return self.settings.database_url
        from memsvc.db import embedded  # only where there is a server to manage

        return embedded.start(self.settings)

    @cached_property
    def pool(self) -> Pool:
        """
        Connections to a migrated database. The embedded one migrates itself; any other is left as it is.

        Raises:
            DatabaseUnavailable, NotMigrated: it cannot be used.
        """
        with migrate.connect(self.database_url) as conn:
            if self.is_embedded:
                migrate.migrate(conn)
            else:
                migrate.require_current(conn)
        return Pool(self.database_url)

    @cached_property
    def embedder(self) -> Embedder:
        """The model that the settings name; it is read at its first use."""
        from memsvc.embedding import embedder

        return embedder.load(self.settings.embedder, threads=self.settings.embed_threads, settings=self.settings)

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if "pool" in self.__dict__:
            self.pool.close()
