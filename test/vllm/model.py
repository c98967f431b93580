"""The bundled model, unpacked where servers can load it."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

PACKED = Path(__file__).resolve().parents[2] / "models" / "tiny6"
WEIGHTS = "model.safetensors"
PLANES = f"{WEIGHTS}.planes.gz"
SHA256 = "f2248393b54949746783c4987bef6fead75972cb96562571f6f8d377b82c0097"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def interleaved(planes: bytes) -> bytes:
    """Bytes at even offsets come first, then those at odd offsets."""
    odd, out = (len(planes) + 1) // 2, bytearray(len(planes))
    out[0::2], out[1::2] = planes[:odd], planes[odd:]
    return bytes(out)


@cache
def unpacked() -> Path:
    """A folder outside of the checkout, created once. Its name contains the hash of its source; its weights are checked each time."""
    source = hashlib.sha256("".join(_sha256(path) for path in sorted(PACKED.iterdir())).encode()).hexdigest()[:16]
    parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eldr"
    folder = parent / f"tiny6-{source}"
    if (folder / WEIGHTS).exists() and _sha256(folder / WEIGHTS) == SHA256:
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    # An interrupted or a concurrent run leaves no partial folder behind.
    making = Path(tempfile.mkdtemp(prefix="tiny6-", dir=parent))
    try:
        shutil.copytree(PACKED, making, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.gz"))
        (making / WEIGHTS).write_bytes(interleaved(gzip.decompress((PACKED / PLANES).read_bytes())))
        found = _sha256(making / WEIGHTS)
        if found != SHA256:
            raise RuntimeError(f"{PACKED / PLANES} unpacks to {found}, not to {SHA256}: check the file out again.")
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder
