"""Makes the stage of a machine without a network, on a machine with one: `site` (Python packages for Python
3.12 on Linux, x86-64) and `project` (Node and the built project), and cuts both into parts."""

from __future__ import annotations

import fnmatch
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from . import parts
from .paths import CHECKOUT, HERE

PYTHON: Final = (3, 12)
LOCK: Final = HERE / "requirements.txt"
# Any glibc up to that of Ubuntu 24.04.
PLATFORMS: Final = (*(f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)), "manylinux2014_x86_64", "manylinux2010_x86_64")
# What serving an MoE model with FlashAttention 3 and Triton on Hopper does not load.
DROPPED: Final = {
    "vllm/vllm_flash_attn/_vllm_fa2_C*": "FlashAttention 2; Hopper uses 3, and vLLM checks which one is there",
    "vllm/vllm-rs": "front end in Rust, off by default",
    "vllm/_qutlass_C*": "Blackwell",
    "vllm/third_party/fmha_sm100/*": "Blackwell",
    "vllm/third_party/deep_gemm/_C.cpython-31[0134]-*": "other versions of Python",
    "nixl_ep_cu13/*": "NIXL's expert parallelism",
    "mistral_common/data/*": "tokenizers of other models",
    "pycountry/locales/*": "translations",
    "include/*": "headers",
    "*/tests/*": "tests of packages",
    "*.pyi": "type stubs",
    "*.a": "static libraries",
    "bin/*": "console scripts: their first line names this machine's Python",
    "*/__pycache__/*": "compiled again there",
}
PROJECT: Final = ("dist", "data/prompts", "models/tiny6", "package.json", "profiles")

Say = Callable[[str], None]


def make(out: Path, groups: list[str], limit_bytes: int, find_links: list[str], preset: int, say: Say) -> None:
    out.mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    if (out / parts.MANIFEST).exists():
        kept = [entry for entry in parts.read_manifest(out / parts.MANIFEST)["parts"] if entry["group"] not in groups]
    made: list[dict[str, Any]] = []
    for group in groups:
        for old in out.glob(f"{group}-*.part"):
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="eldr-wheelhouse-", dir=out) as folder:
            work = Path(folder) / group
            (site if group == "site" else project)(work, find_links, say)
            size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file() and not path.is_symlink())
            say(f"{group}: {size / 2**20:.0f} MiB, compressing")
            made += parts.cut(work, out, group, limit_bytes, preset)
    entries = sorted(kept + made, key=lambda entry: str(entry["name"]))
    parts.write_manifest(out, entries, {"python": "3.12", "platform": "linux-x86_64", "vllm": _pinned("vllm")})
    for entry in entries:
        say(f"{entry['name']}: {entry['bytes'] / 2**20:.1f} MiB")


def site(target: Path, find_links: list[str], say: Say) -> None:
    wheels = target.parent / "wheels"
    platform = [word for name in PLATFORMS for word in ("--platform", name)]
    common = ["--only-binary=:all:", "--no-deps", "--python-version", "3.12", "--implementation", "cp", *platform]
    links = [word for link in find_links for word in ("--find-links", link)]
    say("downloading the wheels of the lock file")
    _pip("download", "--dest", str(wheels), *common, *links, "-r", str(LOCK))
    say("installing them into one folder")
    _pip("install", "--no-index", "--find-links", str(wheels), "--target", str(target), "--no-compile", *common, "-r", str(LOCK))
    shutil.rmtree(wheels)
    dropped = drop(target)
    say(f"dropped {dropped / 2**20:.0f} MiB that Hopper does not use")
    stand_in(target)


def drop(target: Path) -> int:
    """Deletes what is not needed and returns its bytes."""
    total = 0
    for path in list(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if path.is_file() and any(fnmatch.fnmatch(name, pattern) for pattern in DROPPED):
            total += path.stat().st_size
            path.unlink()
    return total


def stand_in(target: Path) -> None:
    """numba refuses this NumPy. vLLM imports these names at start, but only n-gram speculation calls them."""
    folder = target / "numba"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(
        '"""Stand-in: importing works, calling does not."""\n\n\n'
        "def _missing(*args, **kwargs):\n"
        '    raise RuntimeError("numba is not in this stage: it refuses this version of NumPy")\n\n\n'
        "def jit(*args, **kwargs):\n"
        "    return _missing if args and callable(args[0]) else lambda function: _missing\n\n\n"
        "njit = jit\n"
        "prange = range\n"
        "get_num_threads = set_num_threads = _missing\n"
    )


def project(target: Path, find_links: list[str], say: Say) -> None:
    if not (CHECKOUT / "dist").is_dir():
        raise parts.BadPart("dist/ is missing: run `npm install` or `npm run build` first")
    target.mkdir(parents=True)
    for name in PROJECT:
        source, place = CHECKOUT / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("*.d.ts", "*.map"))
        else:
            shutil.copy2(source, place)
    for package in runtime_packages():
        shutil.copytree(CHECKOUT / package, target / package, ignore=shutil.ignore_patterns("*.d.ts", "*.map", "node_modules"))
    node = subprocess.run(["node", "-p", "process.execPath"], capture_output=True, text=True, check=True).stdout.strip()
    shutil.copy2(node, target / "node")
    say("copied Node and the built project")


def runtime_packages() -> list[str]:
    """Folders of the packages that the built project imports, from the lock file."""
    lock = json.loads((CHECKOUT / "package-lock.json").read_text())["packages"]
    return [name for name, about in lock.items() if name.startswith("node_modules/") and not about.get("dev") and not about.get("optional")]


def install(root: Path, say: Say) -> None:
    """With a network: a virtual environment with the same versions, and torch and the rest that the lock leaves
    to the machine."""
    if sys.version_info[:2] != PYTHON:
        wanted_python, found = (".".join(map(str, version)) for version in (PYTHON, sys.version_info[:3]))
        raise parts.BadPart(f"this is Python {found}, and the pinned packages are for {wanted_python}: run it with python{wanted_python}")
    venv = root / "venv"
    if not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    say(f"installing vLLM {_pinned('vllm')} and NIXL {_pinned('nixl')} into the stage's environment")
    wanted = [f"vllm=={_pinned('vllm')}", f"nixl=={_pinned('nixl')}", f"nixl-cu13=={_pinned('nixl-cu13')}"]
    subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted], check=True)


def _pinned(name: str) -> str:
    for line in LOCK.read_text().splitlines():
        if line.startswith(f"{name}=="):
            return line.split("==")[1].split()[0]
    raise KeyError(name)


def _pip(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise parts.BadPart(f"pip {arguments[0]} failed:\n{done.stderr[-3000:]}")
