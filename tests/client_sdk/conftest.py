"""A small session in a temporary directory: three hospitals, a program with every kind of sum."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_sdk.gate.policy import Policy
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import exact
from kernels.rounds.program import Program
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, permissive
from tests.dealing import home_keys
from tests.kernels.rounds.tables import program as program_with
from tests.kernels.rounds.tables import tables

NAMES = ("A", "B", "C")
Make = Callable[..., tuple[SmallCoordinator, list[Hospital]]]


@pytest.fixture
def program() -> Program:
    start = program_with(exact.Spec(steps=1, penalties=(3.0,)))
    stages = (*start.stages, recalibration.Spec(min_rows=10), evaluation.Spec())
    made = Program(start.schema, start.kernel, stages, start.max_rows, start.held_out)
    return Program.from_json(made.to_json())  # as every member reads it


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[Path]:
    """Return a folder of real files, in memory if possible, because every step is fsynced."""
    memory = Path("/dev/shm")  # noqa: S108
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def make(homes: Path, program: Program) -> Make:
    """Return a coordinator with an open run, and hospitals that each have a roster file."""

    def made(
        policy: Policy | None = None, *, pinned: bool = True, names: tuple[str, ...] = NAMES
    ) -> tuple[SmallCoordinator, list[Hospital]]:
        coordinator = SmallCoordinator(program, names)
        keys = home_keys(homes, names)
        coordinator.members.update(keys)
        coordinator.start()
        hospitals = [
            Hospital(
                coordinator.link(i),
                homes / name,
                table,
                policy or permissive(program),
                roster=keys if pinned else None,
            )
            for i, (name, table) in enumerate(zip(names, tables(len(names)), strict=True))
        ]
        return coordinator, hospitals

    return made
