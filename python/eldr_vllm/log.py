"""Lines in vLLM's own log: a child of its logger takes its format. Every line starts with "eldr:"; docs/guides/vllm.md lists them."""

from __future__ import annotations

import logging

_logger = logging.getLogger("vllm.eldr")


def info(message: str, *args: object) -> None:
    _logger.info("eldr: " + message, *args)


def warning(message: str, *args: object) -> None:
    _logger.warning("eldr: " + message, *args)


def failure(message: str, *args: object) -> None:
    """With the exception that is being handled."""
    _logger.error("eldr: " + message, *args, exc_info=True)
