"""The second capture in the same forward pass: it must see a difference where there is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


def test_choices_that_the_plugin_counted_otherwise(tmp_path: Path) -> None:
    import numpy as np
    from eldr_inside.twin import Twin

    path = tmp_path / "twin.json"
    twin = Twin(str(path))
    for layer in (0, 1):
        twin.add_layer(layer, 2)
        twin.keep(layer, torch.tensor([[0, 1], [0, 3], [7, 7]]))  # the last row is padding
    right = np.array([[2, 1, 0, 1], [2, 1, 0, 1]])
    twin.compare(2, right)
    assert json.loads(path.read_text()) == {"prompts": 1, "choices": 8, "differing": 0, "byLayer": [0, 0]}
    wrong = right.copy()
    wrong[1] = [1, 1, 1, 1]
    twin.compare(2, wrong)
    assert json.loads(path.read_text()) == {"prompts": 2, "choices": 16, "differing": 1, "byLayer": [0, 1]}
    lost = right.copy()
    lost[0, 0] -= 1
    twin.compare(2, lost)
    assert json.loads(path.read_text()) == {"prompts": 3, "choices": 24, "differing": 2, "byLayer": [1, 1]}
