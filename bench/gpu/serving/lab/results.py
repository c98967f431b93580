"""Result files: one per step, saved after every measurement, so that a step that is interrupted continues where
it was. README.md describes the format.

A file is written to the stage, where the next command finds it, and copied to the folder of --out, which may be
emptied or fetched in between. Only the stage's file is continued: results in other folders, such as those of the
repository, were measured elsewhere."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from .say import say

FORMAT: Final = "eldr.gpu-serving.v1"


class OutOfTime(Exception):
    """The step's time is over. What was measured is saved; run the step again to continue."""


class Result:
    """A result file. Its own part, such as "served", is an object (`body`) or a list of items. folders: the stage's,
    which is read and written, then others, which are only written."""

    def __init__(
        self, name: str, kind: str, key: str, settings: Mapping[str, Any], folders: list[Path], is_dry: bool, limit_s: float
    ) -> None:
        self.name, self.key, self.folders, self.is_dry, self.limit_s = name, key, folders, is_dry, limit_s
        self._began = time.monotonic()
        old = self._saved(dict(settings))
        self.value: dict[str, Any] = old or {
            "format": FORMAT,
            "kind": kind,
            "name": name,
            "status": "dry" if is_dry else "partial",
            "settings": dict(settings),
            "seconds": 0.0,
        }
        self._before_s = float(self.value["seconds"])

    def _saved(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        """An earlier result with the same settings. A dry run and a measurement never continue each other."""
        try:
            value = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return None
        if value.get("format") == FORMAT and value["settings"] == settings and (value["status"] == "dry") == self.is_dry:
            return dict(value)
        return None

    @property
    def path(self) -> Path:
        return self.folders[0] / f"{self.name}.json"

    @property
    def is_complete(self) -> bool:
        return bool(self.value["status"] == "ok")

    def already_done(self) -> bool:
        """Whether an earlier command completed it on this stage. Says so, and copies the file to --out."""
        if self.is_complete:
            self._write()
            say(f"already done: {self.path}; delete it to measure again")
        return self.is_complete

    @property
    def body(self) -> dict[str, Any]:
        made: dict[str, Any] = self.value.setdefault(self.key, {})
        return made

    def set(self, **parts: Any) -> None:
        """Parts of the envelope, such as conditions or model."""
        self.value.update(parts)

    def part(self, name: str, measure: Callable[[], Any], needs_s: float = 0) -> Any:
        """A part of the body: measured if it is not saved yet. needs_s: how long that takes at most."""
        if name not in self.body:
            self._check_time(name, needs_s)
            self.body[name] = measure()
            self.save()
        return self.body[name]

    def item(self, name: str, identity: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]], needs_s: float = 0) -> dict[str, Any]:
        """An item of a list of the body (or, without a name, of the list that is the body): measured if no item
        with these values is saved yet."""
        items: list[dict[str, Any]] = self.body.setdefault(name, []) if name else self.value.setdefault(self.key, [])
        for item in items:
            if all(item.get(key) == value for key, value in identity.items()):
                return item
        self._check_time(" ".join(map(str, identity.values())), needs_s)
        made = {**identity, **measure()}
        items.append(made)
        self.save()
        return made

    def left_s(self) -> float:
        return self.limit_s - (time.monotonic() - self._began)

    def _check_time(self, what: str, needs_s: float) -> None:
        if self.left_s() < needs_s:
            self.save()
            raise OutOfTime(f"{what} takes up to {needs_s:.0f} s, and {self.left_s():.0f} s are left")

    def save(self) -> None:
        self.value["seconds"] = round(self._before_s + time.monotonic() - self._began, 1)
        self._write()

    def _write(self) -> None:
        text = json.dumps(self.value, ensure_ascii=False, separators=(",", ":")) + "\n"
        for folder in dict.fromkeys(self.folders):
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / f"{self.name}.new"
            new.write_text(text)
            os.replace(new, folder / f"{self.name}.json")

    def finish(self) -> None:
        if not self.is_dry:
            self.value["status"] = "ok"
        self.save()
        say(f"{self.name}: {self.value['status']}, {self.value['seconds']:.0f} s")
