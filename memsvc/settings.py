"""Settings, read from the environment once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memsvc.errors import WrongUse


@dataclass(frozen=True)
class Settings:
    """
    What the surroundings decide.

    `database_url` is None when the embedded database is meant. `admin_database_url` is a login that may become the
    schema's owner, when the everyday login may not. `data_dir` holds the embedded database. `embedder` names the model
    that embeds queries and new memories. `embed_threads` is the number of threads one embedding uses. `embed_api_key`
    and `embed_max_tokens` are the key and the window in tokens of a model behind an endpoint; `openai_api_key` is for
    OpenAI alone.
    """

    data_dir: Path
    database_url: str | None = None
    admin_database_url: str | None = None
    embedder: str = "builtin"
    embed_threads: int = 1
    embed_api_key: str | None = field(default=None, repr=False)
    openai_api_key: str | None = field(default=None, repr=False)
    embed_max_tokens: int = 8191
    postgres_bin: Path | None = None


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """
    Read the settings.

    Raises:
        WrongUse: a variable holds what it cannot hold.
    """
    env = os.environ if environ is None else environ
    postgres_bin = env.get("MEMSVC_POSTGRES_BIN")
    return Settings(
        data_dir=_data_dir(env),
        database_url=env.get("MEMSVC_DATABASE_URL") or None,
        admin_database_url=env.get("MEMSVC_ADMIN_DATABASE_URL") or None,
        embedder=env.get("MEMSVC_EMBEDDER") or "builtin",
        embed_threads=_positive(env, "MEMSVC_EMBED_THREADS", default=1),
        embed_api_key=env.get("MEMSVC_EMBED_API_KEY", "").strip() or None,
        openai_api_key=env.get("OPENAI_API_KEY", "").strip() or None,
        embed_max_tokens=_positive(env, "MEMSVC_EMBED_MAX_TOKENS", default=8191),
        postgres_bin=Path(postgres_bin) if postgres_bin else None,
    )


def _data_dir(env: Mapping[str, str]) -> Path:
    given = env.get("MEMSVC_DATA_DIR")
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path  # only here: not needed where the folder is named

    return user_data_path("memsvc")


def _positive(env: Mapping[str, str], name: str, *, default: int) -> int:
    given = env.get(name)
    if not given:
        return default
    try:
        number = int(given)
    except ValueError:
        number = 0
    if number < 1:
        raise WrongUse(f"{name} is {given!r}, not a whole number above zero", mend=f"unset {name}")
    return number
