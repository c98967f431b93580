from __future__ import annotations

import pytest

from eldr_vllm.versions import verdict


@pytest.mark.parametrize(
    ("version", "grade"),
    [("0.26.0", "known"), ("0.32.0", "known"), ("0.32.1+cpu", "known"), ("0.25.1", "untested"), ("0.28.0", "untested"),
     ("0.33.0", "untested"), ("1.0.0", "untested"), ("0.24.1", "old"), ("0.9.2", "old"), ("dev", "untested")],
)  # fmt: skip
def test_grades_a_version(version: str, grade: str) -> None:
    found, sentence = verdict(version)
    assert found == grade
    assert version in sentence
