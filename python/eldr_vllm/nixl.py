"""Sets a delay between polls of NIXL's progress thread. Without it, the thread polls constantly and uses one
core per server, even when idle. A delay helps where servers share few cores, as in tests. It is off by
default and set with ELDR_NIXL_DELAY_US, an environment variable, because NIXL's agent is created before our
connector and also on servers without it."""

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
