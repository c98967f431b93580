"""Loaded by vLLM in every process of a measured server, as a general plugin. Does nothing unless the variable
ELDR_INSIDE, written by lab/servers.py, asks for it:

  {"wide": true}          the load format `wide` (wide_loader.py)
  {"dummy": true}         dummy weights without biases (dummy_bias.py)
  {"steps": FILE}         time, batch and experts of every step (recorder.py)
  {"timers": FILE}        host time of the plugin's functions (timers.py)
  {"profile": FOLDER}     torch's profiler for a few steps, when asked (torch_profile.py)
  {"twin": FILE}          a second capture in the same forward pass (twin.py)
  {"switch": FILE}        capture switched on and off (switch.py)
  {"spans": FILE}         time of each request in the engine (spans.py)"""

from __future__ import annotations

import json
import os

VARIABLE = "ELDR_INSIDE"


def register() -> None:
    wanted = json.loads(os.environ.get(VARIABLE) or "{}")
    if wanted.get("wide"):
        from . import wide_loader

        wide_loader.install()
    if wanted.get("dummy"):
        from . import dummy_bias

        dummy_bias.install()
    if wanted.get("steps"):
        from . import recorder

        recorder.install(wanted["steps"])
    if wanted.get("timers"):
        from . import timers

        timers.install(wanted["timers"])
    if wanted.get("profile"):
        from . import torch_profile

        torch_profile.install(wanted["profile"])
    if wanted.get("twin"):
        from . import twin

        twin.install(wanted["twin"])
    if wanted.get("switch"):
        from . import switch

        switch.install(wanted["switch"])
    if wanted.get("spans"):
        from . import spans

        spans.install(wanted["spans"])
