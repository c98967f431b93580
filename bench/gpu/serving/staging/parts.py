"""Cuts a folder into parts for a machine without a network, and puts it together there.

A part is a plain tar of shards; a shard is an xz-compressed tar. Parts can be unpacked in any order, as soon as
they arrive, and the shards of a part in parallel. A file that is larger than a piece travels in pieces, which
are written at their offsets. Only Python's standard library is needed."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "manifest.json"
PIECE_BYTES: Final = 16 << 20
SHARD_BYTES: Final = 24 << 20  # before compression
_OFFSET: Final = "ELDR.offset"


class BadPart(Exception):
    """A part that cannot be used. The message says which one, and what to do."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file; most files are one piece. `name` is relative to the folder."""

    name: str
    offset: int
    size: int
    is_whole: bool


def pieces_of(folder: Path, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """All files and symbolic links below the folder, by name."""
    out: list[Piece] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            out.append(Piece(name, 0, 0, True))
        elif path.is_file():
            size = path.stat().st_size
            if size <= piece_bytes:
                out.append(Piece(name, 0, size, True))
            else:
                out += [Piece(name, at, min(piece_bytes, size - at), False) for at in range(0, size, piece_bytes)]
    return out


def shards_of(pieces: Iterable[Piece], shard_bytes: int = SHARD_BYTES) -> Iterator[list[Piece]]:
    """Consecutive pieces, so that similar files compress together."""
    shard: list[Piece] = []
    size = 0
    for piece in pieces:
        if shard and size + piece.size > shard_bytes:
            yield shard
            shard, size = [], 0
        shard.append(piece)
        size += piece.size
    if shard:
        yield shard


def packed(folder: Path, shard: list[Piece], preset: int) -> bytes:
    """A shard as bytes. Owners and times are left out, so that the same files give the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for piece in shard:
            path = folder / piece.name
            info = tarfile.TarInfo(piece.name)
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(info)
                continue
            info.size, info.mode = piece.size, path.stat().st_mode & 0o777
            if not piece.is_whole:
                info.pax_headers = {_OFFSET: str(piece.offset)}
            with path.open("rb") as file:
                file.seek(piece.offset)
                tar.addfile(info, file)
    return lzma.compress(raw.getvalue(), preset=preset)


def cut(folder: Path, out: Path, group: str, limit_bytes: int, preset: int = 6, processes: int | None = None) -> list[dict[str, Any]]:
    """Writes the parts of a folder to `out` and returns their entries for the manifest."""
    out.mkdir(parents=True, exist_ok=True)
    writer = _PartWriter(out, group, limit_bytes)
    shards = list(shards_of(pieces_of(folder)))
    with ProcessPoolExecutor(processes) as pool:
        for data in pool.map(packed, [folder] * len(shards), shards, [preset] * len(shards)):
            writer.add(data)
    return writer.close()


class _PartWriter:
    def __init__(self, out: Path, group: str, limit_bytes: int) -> None:
        self.out, self.group, self.limit = out, group, limit_bytes
        self.entries: list[dict[str, Any]] = []
        self._shards: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        room = -(-len(data) // 512) * 512 + 512  # in a tar
        if room + _TAR_END > self.limit:
            raise BadPart(f"a shard has {len(data)} bytes; parts of {self.limit} are too small")
        if self._size + room + _TAR_END > self.limit:
            self._flush()
        self._shards.append(data)
        self._size += room

    def close(self) -> list[dict[str, Any]]:
        self._flush()
        return self.entries

    def _flush(self) -> None:
        if not self._shards:
            return
        path = self.out / f"{self.group}-{len(self.entries):02d}.part"
        with tarfile.open(path, "w") as tar:
            for index, data in enumerate(self._shards):
                info = tarfile.TarInfo(f"{index:03d}.tar.xz")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        self.entries.append({"name": path.name, "group": self.group, "bytes": path.stat().st_size, "sha256": sha256_of(path)})
        self._shards, self._size = [], 0


_TAR_END: Final = 10240  # a tar ends with zeros up to a multiple of its record size


def write_manifest(out: Path, entries: list[dict[str, Any]], about: dict[str, Any]) -> None:
    text = json.dumps({"format": "eldr.gpu-parts.v1", **about, "parts": entries}, indent=1)
    (out / MANIFEST).write_text(text + "\n")


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
        if value["format"] != "eldr.gpu-parts.v1":
            raise KeyError("format")
        return dict(value)
    except FileNotFoundError as error:
        raise BadPart(f"{path.name} is missing: it must lie beside the parts") from error
    except (ValueError, KeyError) as error:
        raise BadPart(f"{path.name} is not a manifest of `run.py wheelhouse`") from error


def check_part(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    known = {entry["name"]: entry for entry in manifest["parts"]}
    if path.name not in known:
        raise BadPart(f"{path.name} is not in the manifest, which lists {', '.join(known)}")
    if sha256_of(path) != known[path.name]["sha256"]:
        raise BadPart(f"{path.name} is damaged (its SHA-256 differs from the manifest): send it again")
    return dict(known[path.name])


def unpack_part(path: Path, target: Path, processes: int | None = None) -> int:
    """Unpacks a part into target/GROUP and returns the number of its shards."""
    with tarfile.open(path) as tar:
        spans = [(path, member.offset_data, member.size, target) for member in tar]
    target.mkdir(parents=True, exist_ok=True)
    if len(spans) == 1:
        _unpack_shard(spans[0])
        return 1
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(_unpack_shard, spans))
    return len(spans)


def _unpack_shard(span: tuple[Path, int, int, Path]) -> None:
    path, offset, size, target = span
    with path.open("rb") as file:
        file.seek(offset)
        raw = lzma.decompress(file.read(size))
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        for member in tar:
            at = member.pax_headers.get(_OFFSET)
            if at is None:
                tar.extract(member, target, filter="tar")
            else:
                _write_piece(target / member.name, int(at), tar.extractfile(member), member.mode)


def _write_piece(path: Path, offset: int, source: Any, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, source.read(), offset)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
