"""Writes to vLLM's log, in its format, through a child of its logger. Every line starts with "eldr:";
docs/guides/vllm.md lists the lines."""

from __future__ import annotations

import logging

_logger = logging.getLogger("vllm.eldr")


def info(message: str, *args: object) -> None:
    _logger.info("eldr: " + message, *args)


def warning(message: str, *args: object) -> None:
    _logger.warning("eldr: " + message, *args)


def failure(message: str, *args: object) -> None:
    """Logs with the traceback of the current exception."""
    _logger.error("eldr: " + message, *args, exc_info=True)
