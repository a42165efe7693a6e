"""A trial reaches every stage, also of a run that starts from a model with outcomes."""

import pytest

from client_sdk.gate.trial import tried
from kernels.rounds.automatic import automatic_program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site.site import Site
from kernels.tables.targets import AnyTarget
from tests.dealing import DEALING
from tests.kernels.rounds import every_kind
from tests.kernels.rounds import outcomes as small


@pytest.mark.parametrize("targets", [(), (every_kind.READMITTED,)])
@pytest.mark.parametrize("kind", [Kind.TRAIN, Kind.LINEAR])
def test_every_layer_is_tried(targets: tuple[AnyTarget, ...], kind: Kind) -> None:
    program = program_of(kind, every_kind.program(*targets))
    site = Site.of_table(program.schema, every_kind.table(60), held_out=0.2, dealing=DEALING)
    stages = {each.stage for each in tried(program, lambda _: site)}
    assert stages == set(range(len(program.stages)))


@pytest.mark.parametrize("kind", [Kind.TRAIN, Kind.LINEAR, Kind.UPDATE])
def test_every_stage_of_a_program_that_chooses_its_kernel_is_tried_in_few_sums(kind: Kind) -> None:
    program = program_of(kind, automatic_program(small.MIXED, max_rows=1000))
    site = small.site(60, schema=small.MIXED, held_out=0.2)
    sums = [each.stage for each in tried(program, lambda _: site)]
    assert set(sums) == set(range(len(program.stages)))
    assert len(sums) < 20
