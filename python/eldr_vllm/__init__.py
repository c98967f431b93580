"""ELDR's plugin for vLLM: adds the experts that a prompt used to the hand-off of its KV cache.

vLLM calls `register` in every process it starts, sometimes more than once. `register` must not fail: a server
with the plugin installed but not configured must behave like a server without it."""

from __future__ import annotations

__version__ = "0.1.0"


def register() -> None:
    from . import log, nixl, placement

    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

        if "EldrConnector" not in KVConnectorFactory._registry:
            KVConnectorFactory.register_connector("EldrConnector", "eldr_vllm.connector", "EldrConnector")
        nixl.apply()
        placement.install()
    except Exception as error:
        log.warning("this vLLM cannot take the plugin: %s: %s", type(error).__name__, error)
