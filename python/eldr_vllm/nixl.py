"""Sets a delay for NIXL's progress thread, which otherwise polls constantly and uses a core per server even
when idle (vllm.md §12.2). For tests in which servers share few cores; off by default, set with
ELDR_NIXL_DELAY_US. It slows every transfer: the thread also moves the data of transfers that UCX emulates. An
environment variable, because NIXL's agent is created before our connector, and also on servers without it."""

from __future__ import annotations

import os
from typing import Any

from . import log

VARIABLE = "ELDR_NIXL_DELAY_US"


def apply() -> None:
    text = os.environ.get(VARIABLE, "")
    if text in ("", "0"):
        return
    if not text.isdigit():
        log.warning("%s is %r, expected whole microseconds; NIXL is not changed", VARIABLE, text)
        return
    try:
        from vllm.distributed import nixl_utils
    except ImportError as error:
        log.warning("%s is set, but this vLLM has no nixl_utils (%s)", VARIABLE, error)
        return
    if getattr(nixl_utils, "_eldr_delay", None) is not None:
        return
    if not hasattr(nixl_utils, "_load_nixl_attr"):
        log.warning("%s is set, but this vLLM loads NIXL in a different way; NIXL is not changed", VARIABLE)
        return
    if on_gpu():
        log.warning("%s=%s slows every KV transfer; it is for tests on few CPU cores, unset it on a GPU", VARIABLE, text)
    nixl_utils._eldr_delay = int(text)
    load = nixl_utils._load_nixl_attr

    def patched(name: str) -> Any:
        attribute = load(name)
        if name == "NixlWrapper" and attribute is not None:
            try:
                delay_agents(attribute.__init__.__globals__["nixlBind"], int(text))
            except Exception as error:
                log.warning("cannot set NIXL's delay: %s: %s", type(error).__name__, error)
        return attribute

    nixl_utils._load_nixl_attr = patched


def on_gpu() -> bool:
    try:
        from vllm.platforms import current_platform

        return bool(current_platform.is_cuda_alike())
    except Exception:
        return False


def delay_agents(bind: Any, microseconds: int) -> None:
    """Patches NIXL's module so that every new agent has the delay; further calls do nothing."""
    if getattr(bind, "_eldr_delay", None) is not None:
        return
    make = bind.nixlAgent

    def agent(name: str, config: Any) -> Any:
        config.pthrDelay = microseconds
        return make(name, config)

    bind.nixlAgent = agent
    bind._eldr_delay = microseconds
    log.info("NIXL's progress thread pauses %d µs between polls", microseconds)
