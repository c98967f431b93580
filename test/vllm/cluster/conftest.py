"""1 prefill and 2 decode workers with NIXL between them, and a plain server: started once for all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cluster import Cluster


@pytest.fixture(scope="package")
def started(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    """The complete cluster, whatever the previous test did."""
    started.repair()
    return started
