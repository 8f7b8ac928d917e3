from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshots import NAMES, VERSIONS


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty Codex home."""
    folder = tmp_path / ".codex"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """A Codex version of which there are real exports."""
    return str(request.param)


@pytest.fixture(scope="session", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a snapshot."""
    return str(request.param)
