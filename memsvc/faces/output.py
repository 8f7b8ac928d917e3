"""What every command does: open the service, then print for people or one JSON document."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from memsvc.service.app import App

Command = TypeVar("Command", bound=Callable[..., Any])


def as_json(command: Command) -> Command:
    """Every command prints either for people or one JSON document."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def opened() -> App:
    """The service, as the environment sets it; a context manager."""
    from memsvc import settings
    from memsvc.service.app import App

    return App(settings.load())


def print_result(result: object, as_json: bool, for_people: Callable[[Console], None]) -> None:
    """One JSON document, or what `for_people` makes of a console."""
    if as_json:
        click.echo(json.dumps(_plain(result), default=_text, ensure_ascii=False, indent=2))
        return
    from memsvc.faces.tables import console

    for_people(console())


def print_lines(result: object, as_json: bool, lines: Iterable[str]) -> None:
    """One JSON document, or the lines."""
    from memsvc.faces.tables import print_lines as printed

    print_result(result, as_json, lambda out: printed(out, lines))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
