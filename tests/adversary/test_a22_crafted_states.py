"""A22: states that are crafted to read single patients out of honest sums.

Each attack is carried out twice. Once on what the hospitals contribute if they take the
coordinator's word for a state: the attack then reads the patient. And once against the hospitals'
own conversation, which answers from states that follow from verified totals, and from no other:
nobody answers, and every hospital says why.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.ensembles.distilled import Distilled, Lesson, Method, Student
from kernels.ensembles.student_network import StudentSpec
from kernels.errors import StateDiffers
from kernels.features.spec import Architecture, KernelSpec
from kernels.features.urk import weight_shapes
from kernels.rounds import position as positions
from kernels.rounds.algorithm import contributed
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from privacy.encoding import Encoding
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.dealing import DEALING, home_keys

NAMES = ("A", "B", "C")
SCHEMA = Schema(
    (Numeric("age", "a", 0, 120), Numeric("lactate", "mmol/l", 0, 30)),
    (Target("stay", "d", 0, 60),),
)
KERNEL = KernelSpec(
    architecture=Architecture.DEEP, inputs=2, samples=4, hidden=(4,), latent=1, seed=1
)
STAGES = (
    moments.Spec(),
    exact.Spec(steps=2, penalties=(3.0,)),
    linear.Spec(),
    evaluation.Spec(recalibrated=False),
)
PROGRAM = Program.from_json(Program(SCHEMA, KERNEL, STAGES, max_rows=1000, held_out=0.25).to_json())
Table = dict[str, Any]


def table(seed: int) -> Table:
    random = np.random.default_rng(seed)
    age, lactate = random.uniform(20, 90, 40), random.uniform(0.5, 8, 40)
    return {"age": age, "lactate": lactate, "stay": 2 + age / 20 + random.normal(0, 1, 40)}


TABLES = [table(seed) for seed in range(3)]
SITES = [Site.of_table(SCHEMA, each, held_out=PROGRAM.held_out, dealing=DEALING) for each in TABLES]


def total_at(position: Position) -> Any:
    """Return the sum of what the sites contribute if they believe in a position."""
    algorithm, state = position.algorithm, position.state
    encoding = Encoding.finest(algorithm.layout(state), max_clients=len(SITES))
    vectors = [encoding.encode(contributed(algorithm, state, site)) for site in SITES]
    return encoding.decode(np.add.reduce(vectors), contributors=len(SITES))


def honest(stage: int, *, sums: int = 0) -> Position:
    """Return an honest position: the start of a stage, or so many sums later."""
    position = positions.start(PROGRAM, None)
    while position.stage < stage:
        position, _ = positions.after(position, total_at(position))
    for _ in range(sums):
        position, _ = positions.after(position, total_at(position))
    return position


def row_of(part: Part, position: Position) -> tuple[Tensor, float]:
    """Return a victim: the standardised features and outcome of the last site's first row."""
    x, y = SITES[-1].table(part, position.state.model)
    return x[0], float(y[0, 0])


def with_model(position: Position, **changes: Any) -> Position:
    model = replace(position.state.model, **changes)
    return replace(position, state=replace(position.state, model=model))


# -- the attacks


def box(position: Position, victim: Tensor, *, height: float) -> Position:
    """A22a: f(x) is `height` in a small box around one age, and 0 elsewhere: so is sin ωf(x)."""
    steep, half = 1e6, 1e-3
    shapes = weight_shapes(KERNEL)
    weights = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    for unit, edge in enumerate((float(victim[0]) - half, float(victim[0]) + half)):
        weights["f.0.weight"][unit, 0] = steep
        weights["f.0.bias"][unit] = -steep * edge
    weights["f.1.weight"][0, :2] = torch.tensor([height / 2, -height / 2], dtype=torch.float64)
    flat = torch.cat([weights[name].flatten() for name in shapes])
    return with_model(position, weights=flat)


def traps(position: Position, victim: Tensor) -> Position:
    """A22b: one steep tanh unit, whose gradient is that of the only row at its edge."""
    steep = 1e4
    shapes = weight_shapes(KERNEL)
    weights = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    weights["f.0.weight"][0, 0] = steep
    weights["f.0.bias"][0] = -steep * float(victim[0])
    weights["f.1.weight"][0, 0] = 1.0
    weights["f.1.bias"][0] = 1.0
    return with_model(position, weights=torch.cat([weights[name].flatten() for name in shapes]))


def students(position: Position, victim: Tensor, *, height: float) -> Position:
    """A22c: two students that predict the same for all but one held-out patient."""
    spec = StudentSpec(inputs=2, targets=1, hidden=(3,))
    steep, at = 1e4, float(victim[0])
    first = torch.tensor([[steep, 0.0]] * 3, dtype=torch.float64)
    edges = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64) - steep * at
    last = height * torch.tensor([[1.0, -2.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)
    crafted = torch.cat([first.flatten(), edges, last.flatten(), zero])
    silent = torch.zeros_like(crafted)
    distilled = Distilled(
        spec,
        Lesson(),
        (Student(Method.PRODUCT, silent), Student(Method.MIXTURE, crafted)),
    )
    return with_model(position, distilled=distilled)


# -- what they read if they are believed


def test_believed_a_box_counts_one_patient_and_reads_the_outcome() -> None:
    position = honest(2)
    victim, outcome = row_of(Part.TRAINING, position)
    crafted = box(position, victim, height=math.pi / 2)
    total = total_at(crafted)
    sines = crafted.state.model.urk.features(victim[None])[0, KERNEL.samples :].detach().numpy()
    squares = np.diagonal(np.asarray(total["scatter"]))[KERNEL.samples :]
    assert squares / sines**2 == pytest.approx(1.0, abs=1e-6), "rows in the box"
    assert np.asarray(total["cross"])[KERNEL.samples :, 0] / sines == pytest.approx(outcome)


def test_believed_a_trap_reads_a_whole_record() -> None:
    position = honest(1, sums=1)
    victim, _ = row_of(Part.TRAINING, position)
    gradient = np.asarray(total_at(traps(position, victim))["gradient"])
    weights, bias = gradient[:2], gradient[math.prod(weight_shapes(KERNEL)["f.0.weight"])]
    assert weights / bias == pytest.approx(victim.numpy(), rel=1e-6)


def test_believed_students_read_a_held_out_outcome() -> None:
    position = honest(3)
    victim, outcome = row_of(Part.CALIBRATION, position)
    total, height = total_at(students(position, victim, height=2.0)), 2.0
    errors = [float(total[f"{method}.squared_errors"][0]) for method in ("product", "mixture")]
    found = (height**2 - (errors[1] - errors[0])) / (2 * height)
    assert found == pytest.approx(outcome, abs=1e-6)


# -- what they read from hospitals


def session(folder: Path) -> tuple[SmallCoordinator, list[Hospital]]:
    coordinator = SmallCoordinator(PROGRAM, NAMES)
    keys = home_keys(folder, NAMES)
    coordinator.members.update(keys)
    coordinator.start()
    policy = permissive(PROGRAM)
    hospitals = [
        Hospital(coordinator.link(i), folder / name, own, policy, roster=keys)
        for i, (name, own) in enumerate(zip(NAMES, TABLES, strict=True))
    ]
    return coordinator, hospitals


def asks_from(
    coordinator: SmallCoordinator, position: Position, craft: Callable[[Position], Position]
) -> None:
    """Let the coordinator craft the state when the run is at a position."""
    begin = coordinator._begin

    def begin_crafted() -> None:
        if coordinator.done_sums == position.sum_index:
            coordinator.position = craft(coordinator.position)
        begin()

    coordinator._begin = begin_crafted  # type: ignore[method-assign]


ATTACKS: Sequence[Any] = (
    (honest(2), lambda p, at: box(p, at, height=math.pi / 2), Part.TRAINING),
    (honest(1, sums=1), traps, Part.TRAINING),
    (honest(3), lambda p, at: students(p, at, height=2.0), Part.CALIBRATION),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=["a22a", "a22b", "a22c"])
def test_hospitals_do_not_answer_from_a_crafted_state(homes: Path, attack: Any) -> None:
    position, craft, part = attack
    victim, _ = row_of(part, position)
    coordinator, hospitals = session(homes)
    asks_from(coordinator, position, lambda now: craft(now, victim))
    drive(hospitals, coordinator)
    assert len(coordinator.uploads) == len(NAMES) * position.sum_index, "not one from it"
    assert isinstance(hospitals[0].error, StateDiffers)
    assert {told["code"] for told in coordinator.refusals} == {StateDiffers.code}
