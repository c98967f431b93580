"""CUDA MPS: engines on one GPU run at the same time instead of taking turns by time slice. Its daemon belongs to
the stage; servers find it through the variables below."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

from staging.paths import Stage

_CONTROL = "nvidia-cuda-mps-control"


def variables(stage: Stage) -> dict[str, str]:
    folder = stage.root / "mps"
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}


def sees_gpu() -> bool:
    """Servers that find no GPU take minutes to say so."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "GPU " in done.stdout


def is_available() -> bool:
    return shutil.which(_CONTROL) is not None


def is_running(stage: Stage) -> bool:
    return is_available() and _ask(stage, "get_server_list").returncode == 0


def start(stage: Stage, seconds: float = 10) -> bool:
    """False if this machine has no MPS. Must run before the first server."""
    if not is_available():
        return False
    if is_running(stage):
        return True
    for folder in variables(stage).values():
        os.makedirs(folder, exist_ok=True)
    # The daemon leaves this session by itself.
    subprocess.run([_CONTROL, "-d"], env=os.environ | variables(stage), check=False, capture_output=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_running(stage):
            return True
        time.sleep(0.2)
    return False


def stop(stage: Stage) -> None:
    if is_running(stage):
        _ask(stage, "quit")


def _ask(stage: Stage, words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | variables(stage)
    try:
        return subprocess.run([_CONTROL], input=words + "\n", env=env, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(error.cmd, 1, "", "")
