"""A trial reaches every stage, also of a run that starts from a model with outcomes."""

from typing import Any, ClassVar

import pytest

from client_sdk.gate.trial import tried
from kernels.errors import ComputationFailed
from kernels.features.spec import KernelSpec
from kernels.model.model import Model
from kernels.rounds.automatic import automatic_program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site.site import Part, Site
from kernels.tables.targets import AnyTarget
from tests.dealing import DEALING
from tests.kernels.rounds import every_kind
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds.tables import SCHEMA, table


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
    assert len(sums) < 40


class Recorded(Site):
    """A site that notes the kernels that its held-out rows are judged with, for each part."""

    judged: ClassVar[list[KernelSpec]] = []

    def chunks_in_folds(self, part: Part, model: Model, **kept: Any) -> Any:
        self.judged.append(model.kernel)
        return super().chunks_in_folds(part, model, **kept)


def test_no_recipe_of_a_search_leaves_before_its_layers_are_tried() -> None:
    """One that does could fail after entry, by rows that were never tried with it."""
    bent = table(3000, seed=3)  # a line is far behind
    bent["stay"] = [abs(age - 55) / 10 for age in bent["age"]]
    program = automatic_program(SCHEMA, max_rows=3000)
    parts = Site.of_table(program.schema, bent, held_out=0.4, dealing=DEALING).parts
    site = Recorded(parts, digest=bytes(32), dealing=DEALING)
    of_search = []
    for each in tried(program, lambda _: site):
        if each.stage == 1:
            of_search += site.judged
        site.judged.clear()
    recipes = program.stages[1].recipes
    *alone, stopping, calibration = of_search
    kernels = [program.choices[recipe.kernel] for recipe in recipes]
    assert alone == [kernel for kernel in kernels for _ in (Part.STOPPING, Part.CALIBRATION)]
    assert stopping == calibration, "and the two densest together"
    assert stopping in kernels


@pytest.mark.parametrize("kind", [*Kind])
def test_every_stage_is_tried_with_every_kernel_that_may_have_been_chosen(kind: Kind) -> None:
    whole = automatic_program(small.MIXED, max_rows=1000)
    program = program_of(kind, whole)
    site = small.site(60, schema=small.MIXED, held_out=0.2)
    models: list[Model] = []

    def site_of(model: Model) -> Site:
        models.append(model)
        return site

    stages = [each.stage for each in tried(program, site_of)]
    settled = set(zip(stages, (own.kernel for own in models), strict=True))
    after = 2 if kind is Kind.TRAIN else 0
    for stage in range(after, len(program.stages)):
        assert {kernel for n, kernel in settled if n == stage} == set(program.choices)


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.UPDATE])
def test_where_two_kernels_may_be_mixed_every_stage_is_tried_with_two(kind: Kind) -> None:
    program = program_of(kind, automatic_program(SCHEMA, max_rows=1000, max_features=20))
    site = Site.of_table(SCHEMA, table(60, seed=1), held_out=0.2, dealing=DEALING)
    models: list[Model] = []

    def site_of(model: Model) -> Site:
        models.append(model)
        return site

    stages = {each.stage for each in tried(program, site_of)}
    assert stages == set(range(len(program.stages)))
    assert {own.kernel for own in models} == set(program.choices)
    assert all(own.second.kernel == own.kernel for own in models)


def test_what_fails_after_a_choice_is_named_by_its_stage_in_the_whole_program() -> None:
    program = automatic_program(SCHEMA, max_rows=70)
    site = Site.of_table(SCHEMA, table(200, seed=1), held_out=0.2, dealing=DEALING)
    few = Site({Part.TRAINING: site.parts[Part.TRAINING].between(slice(0, 60))}, dealing=DEALING)

    def site_of(model: Model) -> Site:
        return few if model.choices or model.standardiser is None else site

    with pytest.raises(ComputationFailed, match="stage 3, linear"):
        list(tried(program, site_of))
