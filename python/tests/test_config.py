from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eldr_vllm.config import Config, ConfigError, config_in, config_of


@pytest.mark.parametrize(
    ("role", "capture", "metrics"), [("kv_producer", True, False), ("kv_both", True, False), ("kv_consumer", False, True)]
)
def test_by_default_prefill_captures_and_decode_observes(role: str, capture: bool, metrics: bool) -> None:
    config = config_of(None, role)
    assert (config.capture, config.metrics) == (capture, metrics)
    assert config_of({"capture": True, "metrics": True}, role) == Config(capture=True, metrics=True)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"half_live": 64}, "unknown setting 'half_live' (did you mean 'half_life'?)"),
        ({"half_life": 0.5}, "half_life is 0.5; expected a number of tokens from 1 to 177, or null"),
        ({"half_life": True}, "half_life is True"),
        ({"half_life": "64"}, "half_life is '64'"),
        ({"metrics_every": 0}, "metrics_every is 0; expected a whole number from 1"),
        ({"capture": 1}, "capture is 1; expected true or false"),
        ({"placement": "p.safetensors"}, "placement and cluster must be set together"),
        ({"cluster": 1}, "placement and cluster must be set together"),
        ({"placement": "p", "cluster": -1}, "cluster is -1"),
    ],
)
def test_reports_invalid_settings(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config_of(extra, "kv_producer")
    assert message in str(error.value)


def test_settings_of_earlier_versions_do_not_stop_a_server() -> None:
    assert config_of({"store": "blocks", "record": True, "half_life": 8}, "kv_producer") == Config(half_life=8)


def transfer(name: str, role: str, extra: dict[str, Any]) -> Any:
    return SimpleNamespace(kv_transfer_config=SimpleNamespace(kv_connector=name, kv_role=role, kv_connector_extra_config=extra))


def test_is_found_alone_and_under_multi_connector() -> None:
    assert config_in(SimpleNamespace(kv_transfer_config=None)) is None
    assert config_in(transfer("NixlConnector", "kv_producer", {})) is None
    alone = config_in(transfer("EldrConnector", "kv_both", {"half_life": 8}))
    child = {"kv_connector": "EldrConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"half_life": 8}}
    beside = config_in(transfer("MultiConnector", "kv_both", {"connectors": [{"kv_connector": "NixlConnector"}, child]}))
    assert alone == beside == Config(half_life=8)
