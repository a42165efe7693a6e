"""A run of a kind that starts from a model, over three hospitals of a session of PLAIN."""

from pathlib import Path
from typing import Any

from client_sdk.home.home import Home
from kernels.model.artifact import Artifact
from kernels.rounds.run_kinds import Kind, program_of
from tests.client_sdk.conftest import NAMES
from tests.client_sdk.coordinator import Reply, SmallCoordinator
from tests.client_sdk.hospitals import Hospital, permissive
from tests.dealing import put_dealing
from tests.kernels.rounds.artifacts import PLAIN
from tests.kernels.rounds.tables import tables


class FromAParent(SmallCoordinator):
    """A coordinator with a session of the program PLAIN, whose run starts from a model."""

    def _membership(self, key: bytes) -> Reply:
        run, self.program = self.program, PLAIN
        try:
            return super()._membership(key)
        finally:
            self.program = run


def from_a_parent(
    homes: Path, kind: Kind, approved: str, served: Artifact, **policy: Any
) -> tuple[SmallCoordinator, list[Hospital]]:
    """Return a run from a model that is approved by its id, and served as an artifact."""
    coordinator = FromAParent(program_of(kind, PLAIN), NAMES)
    coordinator.parent, coordinator.base = approved, served.model
    coordinator.artifact, coordinator.card = served.to_bytes(), served.card.to_plain()
    for name in NAMES:
        put_dealing(homes / name)
    keys = {name: Home(homes / name).identity().key for name in NAMES}
    coordinator.members.update(keys)
    coordinator.start(kind.value)
    algorithms = ("moments", "linear", "update")
    rules = permissive(PLAIN, **{"parents": (approved,), "algorithms": algorithms, **policy})
    return coordinator, [
        Hospital(coordinator.link(i), homes / name, table, rules, roster=keys)
        for i, (name, table) in enumerate(zip(NAMES, tables(3), strict=True))
    ]
