"""A folder that is cut into parts and put together is the same folder, in any order of the parts."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from staging import parts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = random.Random(1)
    made = tmp_path / "made"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "empty").write_bytes(b"")
    (made / "script").write_bytes(b"#!/bin/sh\n")
    (made / "script").chmod(0o755)
    (made / "link").symlink_to("deep/er/random")
    (made / "deep" / "er" / "random").write_bytes(rng.randbytes(3000))
    (made / "deep" / "large").write_bytes(rng.randbytes(200_000))
    return made


@pytest.fixture
def cut(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "SHARD_BYTES", 40_000)
    monkeypatch.setattr(parts.pieces_of, "__defaults__", (30_000,))
    monkeypatch.setattr(parts.shards_of, "__defaults__", (40_000,))
    out = tmp_path / "parts"
    entries = parts.cut(folder, out, "site", 80_000, preset=0, processes=1)
    parts.write_manifest(out, entries, {"vllm": "0"})
    return out


def contents(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    return {
        path.relative_to(folder).as_posix(): (
            0 if path.is_symlink() else path.stat().st_mode & 0o777,
            os.readlink(path) if path.is_symlink() else path.read_bytes(),
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("is_reversed", [False, True])
def test_unpacked_in_any_order_it_is_the_same(folder: Path, cut: Path, tmp_path: Path, is_reversed: bool) -> None:
    files = sorted(cut.glob("*.part"), reverse=is_reversed)
    assert len(files) > 2
    manifest = parts.read_manifest(cut / parts.MANIFEST)
    for file in files:
        assert file.stat().st_size <= 80_000
        assert parts.check_part(file, manifest)["group"] == "site"
        parts.unpack_part(file, tmp_path / "target", processes=1)
    assert contents(tmp_path / "target") == contents(folder)


def test_the_same_files_give_the_same_bytes(folder: Path, cut: Path, tmp_path: Path) -> None:
    again = parts.cut(folder, tmp_path / "again", "site", 80_000, preset=0, processes=1)
    assert again == parts.read_manifest(cut / parts.MANIFEST)["parts"]


def test_a_damaged_part_is_refused(cut: Path) -> None:
    part = next(cut.glob("*.part"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(parts.BadPart, match="damaged"):
        parts.check_part(part, parts.read_manifest(cut / parts.MANIFEST))


def test_an_unknown_part_is_refused(cut: Path) -> None:
    stranger = cut / "other-00.part"
    stranger.write_bytes(b"")
    with pytest.raises(parts.BadPart, match="not in the manifest"):
        parts.check_part(stranger, parts.read_manifest(cut / parts.MANIFEST))


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(parts.BadPart, match=r"manifest\.json is missing"):
        parts.read_manifest(tmp_path / parts.MANIFEST)


def test_parts_that_are_too_small_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(parts.BadPart, match="too small"):
        parts.cut(folder, tmp_path / "small", "site", 12_000, preset=0, processes=1)
