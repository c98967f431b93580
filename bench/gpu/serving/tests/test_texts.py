"""Texts under the policies, compared with each other."""

from __future__ import annotations

import pytest
from steps.texts import the_same


def test_a_prompt_counts_if_its_text_is_the_same_under_every_policy() -> None:
    assert the_same({"round_robin": ["a", "b", "c"], "union": ["a", "x", "c"]}) == 2
    assert the_same({"round_robin": ["a"], "union": ["a"], "eldr": ["b"]}) == 0


def test_every_policy_has_every_prompt() -> None:
    with pytest.raises(ValueError, match="zip"):
        the_same({"round_robin": ["a", "b"], "union": ["a"]})
