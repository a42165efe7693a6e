"""A trial reaches every stage, also of a run that starts from a model with outcomes."""

import pytest

from client_sdk.gate.trial import tried
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site.site import Site
from kernels.tables.targets import AnyTarget
from tests.dealing import DEALING
from tests.kernels.rounds import every_kind


@pytest.mark.parametrize("targets", [(), (every_kind.READMITTED,)])
@pytest.mark.parametrize("kind", [Kind.TRAIN, Kind.LINEAR])
def test_every_layer_is_tried(targets: tuple[AnyTarget, ...], kind: Kind) -> None:
    program = program_of(kind, every_kind.program(*targets))
    site = Site.of_table(program.schema, every_kind.table(60), held_out=0.2, dealing=DEALING)
    stages = {each.stage for each in tried(program, lambda _: site)}
    assert stages == set(range(len(program.stages)))
