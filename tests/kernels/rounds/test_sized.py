"""A program of the size that the smallest table allows."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.errors import ProgramError
from kernels.rounds import sized
from kernels.rounds.automatic import automatic_program
from kernels.rounds.in_words import in_words
from kernels.rounds.known import known
from kernels.rounds.layer import completion
from kernels.rounds.order import whole_program
from kernels.rounds.plan import mixes_kernels, most_features
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site.site import Part
from kernels.rounds.stated.band import check_band
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Binary, Target
from tests.dealing import DEALING

SCHEMA = Schema(
    tuple(Numeric(f"x{place}", "1") for place in range(8)),
    (Target("y", "1"), Binary("sick", ("no", "yes"), event="yes")),
)


def program(smallest: int, **changes: object) -> Program:
    return sized.sized_program(SCHEMA, smallest_table=smallest, members=5, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("smallest", [128, 256, 512, 1024, 4096, 8192])
def test_default_floors_hold_at_a_table_of_the_band(smallest: int) -> None:
    made = program(smallest)
    whole_program.check(made)
    assert sized.rows_needed(made) <= smallest
    features = max(own.features for own in made.kernels)
    rows = [bytes([1]) * 28 + row.to_bytes(4, "big") for row in range(smallest)]
    parts = DEALING.parts(rows, held_out=0.2)
    training, held_out = int((parts == 0).sum()), int((parts != 0).sum())
    assert training >= max(50, 3 * features)
    completes = any(isinstance(stage, completion.Spec) for stage in made.stages)
    assert completes == (smallest >= 8192)
    assert held_out >= max(50, 3 * features) or not completes
    assert Program.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("smallest", "mixes"), [(128, False), (1024, False), (2048, False), (4096, True), (8192, True)]
)
def test_two_kernels_are_mixed_where_there_are_rows_for_the_features_of_both(
    smallest: int, mixes: bool
) -> None:
    """With one kernel counted, two matrices were released over rows for one of them."""
    real = Schema(SCHEMA.features, SCHEMA.targets[:1])
    made = sized.sized_program(real, smallest_table=smallest, members=5)
    largest = max(own.features for own in made.kernels)
    assert mixes_kernels(made) == mixes
    assert most_features(made) == (2 if mixes else 1) * largest
    assert sized.dealt_at_least(smallest, 0.8) >= 3 * most_features(made)
    assert sized.rows_needed(made) <= smallest
    said = in_words(made, blind=True)[-1]
    assert f"{most_features(made):,} features" in said
    assert ("of the two kernels that may be mixed" in said) == mixes


def test_what_may_be_mixed_is_the_largest_of_two_recipes() -> None:
    """Two recipes may train one kernel; a program without its search may start from any mixture."""
    real = Schema(SCHEMA.features, SCHEMA.targets[:1])
    made = automatic_program(real)
    assert [own.features for own in made.kernels] == [9, 200, 400]
    assert most_features(made) == 800, "deep, τ = 30 and τ = 3"
    assert most_features(automatic_program(real, max_sums=60)) == 209, "no networks"
    assert most_features(automatic_program(SCHEMA)) == 400, "an outcome: nothing is mixed"
    assert most_features(automatic_program(real, private=True)) < 400
    (layers,) = {most_features(program_of(Kind.LINEAR, own)) for own in (made, alone(made))}
    assert layers == 800
    assert most_features(alone(made)) == 400


def test_held_out_rows_are_summed_where_there_are_enough_for_each_feature() -> None:
    """With 50 of them for 400 features their sum, the difference of two layers, was the rows."""
    for smallest, completes in ((256, False), (512, True)):
        made = program(smallest, max_features=20)
        stages = [type(own) for own in made.stages]
        assert (completion.Spec in stages) == completes
        aside = sized.dealt_at_least(smallest, 0.2)
        assert (aside >= max(50, 3 * most_features(made))) == completes
        said = in_words(made, blind=True)[-1]
        assert ("because 'completion' sums held-out rows alone" in said) == completes
    whole = automatic_program(SCHEMA)
    assert sized.dealt_at_least(sized.rows_needed(whole), 0.2) >= 3 * most_features(whole)


def alone(made: Program) -> Program:
    stages = [replace(own, blend=False) if hasattr(own, "blend") else own for own in made.stages]
    return replace(made, stages=tuple(stages))


def test_the_line_stays_and_what_is_larger_goes() -> None:
    features = [[own.features for own in program(band).kernels] for band in (64, 128, 8192)]
    assert features == [[9], [9, 30], [9, 200, 400]]
    assert len(program(64).stages) == 5, "of a line there is nothing to search"


def test_what_no_table_of_a_band_can_have_is_refused_with_what_to_do() -> None:
    wide = Schema(tuple(Numeric(f"x{n}", "1") for n in range(60)), SCHEMA.targets)
    with pytest.raises(ProgramError) as refused:
        sized.sized_program(wide, smallest_table=64, members=5)
    for said in ("61 features", "at most 127", "fewer columns", "differential privacy"):
        assert said in str(refused.value)
    with pytest.raises(ProgramError, match="leave the stage 'completion' out"):
        sized.check_fits_smallest(automatic_program(SCHEMA), 64)


@pytest.mark.parametrize("wrong", [0, 1, 100, 127, -128, 128.0, True, "128", None, 1 << 40])
def test_a_band_is_a_power_of_two(wrong: object) -> None:
    with pytest.raises(ProgramError, match="power of two"):
        check_band(wrong)


def test_with_a_stated_number_of_rows_the_coordinators_ratio_holds() -> None:
    made = program(4096, least_rows=4000)
    found = known(made, members=5, blind=True)
    assert found.coordinator <= 0.5 * found.cells
    assert max(k.features for k in made.kernels) < max(k.features for k in program(4096).kernels)


def test_every_session_says_how_many_rows_a_hospital_needs() -> None:
    made = program(128)
    assert f"a table needs about {sized.rows_needed(made):,} rows" in in_words(made, blind=True)[-1]
    assert sized.rows_needed(automatic_program(SCHEMA, private=True)) > 0, (
        "its noise is not planned"
    )


def test_counted_on_is_less_than_the_average() -> None:
    for rows in (64, 500, 10_000):
        assert 0.8 * rows > sized.dealt_at_least(rows, 0.8) > 0.8 * rows - 3 * np.sqrt(rows)
    assert sized.dealt_at_least(10, 0.0) == 0
    assert {Part.TRAINING} == sized._TRAINING
