"""A coordinator for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.coordinator import Coordinator
from tests.stores import Store


@pytest.fixture
def coordinator(tmp_path: Path, store: Store) -> Iterator[Coordinator]:
    with Coordinator(tmp_path, **store) as running:
        yield running
