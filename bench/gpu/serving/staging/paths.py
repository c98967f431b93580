"""Where things are. The stage holds what is not in the checkout: packages, Node, the built project, run files.

On a machine without a network `unpack` fills the stage; on others `install` creates a virtual environment in
it, and the project is used from the checkout."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parents[1]
CHECKOUT: Final = HERE.parents[2]
# Results of the repository: evidence, never continued.
COMMITTED: Final = HERE / "results"


@dataclass(frozen=True, slots=True)
class Stage:
    root: Path

    @property
    def site(self) -> Path:
        """Python packages that come first on the path of the servers."""
        return self.root / "site"

    @property
    def project(self) -> Path:
        """Folder with dist/, data/ and models/."""
        return self.root / "project" if (self.root / "project" / "dist").is_dir() else CHECKOUT

    @property
    def run(self) -> Path:
        """Process ids, logs and files of the servers."""
        return self.root / "run"

    @property
    def results(self) -> Path:
        """Results of this stage, which later commands continue."""
        return self.root / "results"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def entry_points(self) -> Path:
        """Package metadata through which vLLM finds the plugins."""
        return self.root / "entry-points"

    @property
    def unpacked(self) -> Path:
        """One empty file for each unpacked part."""
        return self.root / "unpacked"

    @property
    def node(self) -> str:
        staged = self.root / "project" / "node"
        return str(staged) if staged.exists() else shutil.which("node") or "node"

    @property
    def eldr(self) -> list[str]:
        return [self.node, str(self.project / "dist" / "cli" / "main.js")]

    @property
    def python(self) -> str:
        own = self.root / "venv" / "bin" / "python"
        return str(own) if own.exists() else sys.executable

    @property
    def prompts(self) -> Path:
        return self.project / "data" / "prompts"


def stage_in(given: str | None = None) -> Stage:
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eldr" / "gpu-stage"
    return Stage(Path(given or os.environ.get("ELDR_STAGE") or default).absolute())


def out_in(given: str | None, stage: Stage) -> Path:
    """Where results are copied to."""
    return Path(given or os.environ.get("OUT") or stage.results).absolute()
