"""Local changes: of code, by name; results and documents do not count."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lab import conditions


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("src/a.ts", "bench/gpu/serving/run.py", "bench/gpu/serving/README.md", "bench/gpu/serving/results/served.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=n", "-c", "user.email=e@x", "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(conditions, "CHECKOUT", tmp_path)
    monkeypatch.delenv("ELDR_COMMIT", raising=False)
    return tmp_path


def test_results_and_documents_are_not_changes(checkout: Path) -> None:
    (checkout / "bench/gpu/serving/results/served.json").unlink()
    (checkout / "bench/gpu/serving/README.md").write_text("2")
    found = conditions._commit()
    assert len(found.pop("commit")) == 40
    assert found == {"modified": False}


def test_code_that_differs_is_named(checkout: Path) -> None:
    (checkout / "src/a.ts").write_text("2")
    (checkout / "bench/gpu/serving/run.py").unlink()
    found = conditions._commit()
    assert found["modified"] is True
    assert found["changed"] == ["bench/gpu/serving/run.py", "src/a.ts"]


def test_a_copy_without_git_claims_nothing_about_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "CHECKOUT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("ELDR_COMMIT", "0" * 40)
    assert conditions._commit() == {"commit": "0" * 40}
