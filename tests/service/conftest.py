"""A coordinator for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.coordinator import Coordinator


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with Coordinator(tmp_path) as running:
        yield running
