"""Settings of the connector, from `kv_connector_extra_config`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .wire import MAX_HALF_LIFE


class ConfigError(ValueError):
    """Stops the start of the server. The message says what was found and what was expected."""


# Earlier versions had a second form of the store, without ids. These settings still start a server.
_OBSOLETE = ("store", "record")


@dataclass(frozen=True, slots=True)
class Config:
    # Capture counts for hand-offs and calibration. Default: on, except for kv_consumer (a decode worker).
    capture: bool = True
    # Report distinct experts and batch size of decode steps. Default: on for kv_consumer only.
    metrics: bool = False
    metrics_every: int = 1
    half_life: float | None = None
    placement: str | None = None
    cluster: int | None = None


def config_of(extra: Mapping[str, Any] | None, role: str) -> Config:
    given = {key: value for key, value in (extra or {}).items() if key not in _OBSOLETE}
    known = [field.name for field in fields(Config)]
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ConfigError(f"EldrConnector: unknown setting {key!r}{hint}; there are {', '.join(known)}")
    consumer = role == "kv_consumer"
    given.setdefault("capture", not consumer)
    given.setdefault("metrics", consumer)
    for key in ("capture", "metrics"):
        _check(key, given.get(key, False), isinstance(given.get(key, False), bool), "true or false")
    every = given.get("metrics_every", 1)
    _check("metrics_every", every, _whole(every) and every >= 1, "a whole number from 1")
    half_life = given.get("half_life")
    good = half_life is None or (
        not isinstance(half_life, bool) and isinstance(half_life, (int, float)) and 1 <= half_life <= MAX_HALF_LIFE
    )
    _check("half_life", half_life, good, f"a number of tokens from 1 to {MAX_HALF_LIFE}, or null")
    _check("placement", given.get("placement"), isinstance(given.get("placement"), (str, type(None))), "a path")
    cluster = given.get("cluster")
    _check("cluster", cluster, cluster is None or (_whole(cluster) and cluster >= 0), "a whole number from 0")
    if (given.get("placement") is None) != (cluster is None):
        raise ConfigError("EldrConnector: placement and cluster must be set together: a file, and the cluster of this worker in it")
    return Config(**given)


def config_in(vllm_config: Any) -> Config | None:
    """The connector's settings in vLLM's configuration, alone or under MultiConnector."""
    transfer = getattr(vllm_config, "kv_transfer_config", None)
    if transfer is None:
        return None
    if transfer.kv_connector == "EldrConnector":
        return config_of(transfer.kv_connector_extra_config, str(transfer.kv_role))
    for child in (transfer.kv_connector_extra_config or {}).get("connectors", []):
        if isinstance(child, Mapping) and child.get("kv_connector") == "EldrConnector":
            return config_of(child.get("kv_connector_extra_config"), str(child.get("kv_role")))
    return None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(key: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"EldrConnector: {key} is {value!r}; expected {expected}")
