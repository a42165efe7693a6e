"""What the sums of every kind promise, whatever they are sums of."""

from typing import Any

import torch
from torch import Tensor

from kernels.outcomes.scored.kinds import STORED, kind_of
from kernels.scores.recalibration import FOLDS
from kernels.storage import decode, encode, kinds_of
from kernels.tables.targets import Outcome


def assert_sums_of_parts_are_those_of_the_whole(
    target: Outcome, outcomes: Tensor, predicted: Any, *, atol: float = 1e-8
) -> None:
    """Three parts, one of them empty; also of the folds, and of the blocks with noise."""
    kind, n = kind_of(target), len(outcomes)
    folds = torch.arange(n) % FOLDS
    parts = [torch.arange(n) < n // 3, torch.arange(n) >= n // 3, torch.arange(n) < 0]

    def close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
        for name in right:
            assert torch.allclose(left[name], right[name], rtol=1e-10, atol=atol), name

    whole = kind.sums.of(target, outcomes, predicted)
    held = kind.held.of(target, outcomes, predicted, folds)
    added, added_held = kind.sums.zero(target), kind.held.zero(target)
    for part in parts:
        added = added + kind.sums.of(target, outcomes[part], predicted[part])
        added_held = added_held + kind.held.of(target, outcomes[part], predicted[part], folds[part])
    close(added.named(), whole.named())
    close(added_held.named(), held.named())
    for made in (kind.sums, kind.held):
        few = [made.few(target, outcomes[part], predicted[part]) for part in parts]
        total = made.few(target, outcomes, predicted)
        close({name: sum(own[name] for own in few) for name in total}, total)  # type: ignore[misc]


def assert_a_row_is_within_its_bounds(target: Outcome, outcomes: Tensor, predicted: Any) -> None:
    """Each row by itself, against the bounds of elements and the sensitivities of blocks."""
    kind = kind_of(target)
    for row in range(len(outcomes)):
        one = torch.tensor([row])
        y, said, folds = outcomes[one], predicted[one], torch.tensor([row % FOLDS])
        for made, found in (
            (kind.sums, kind.sums.of(target, y, said).named()),
            (kind.held, kind.held.of(target, y, said, folds).named()),
        ):
            for block in made.blocks(target):
                assert found[block.name].shape == block.shape
                assert float(found[block.name].abs().max()) <= block.bound * (1 + 1e-12)
        for made in (kind.sums, kind.held):
            few = made.few(target, y, said)
            for block in made.few_blocks(target):
                assert few[block.name].shape == block.shape
                assert block.sensitivity is not None
                assert float(few[block.name].norm()) <= block.sensitivity * (1 + 1e-12)
                assert float(few[block.name].abs().max()) <= block.bound * (1 + 1e-12)


def assert_stored(*values: Any) -> None:
    """Their bytes make the same bytes again."""
    kinds = kinds_of(*STORED)
    for value in values:
        assert encode(decode(encode(value), kinds)) == encode(value)


def noisy(blocks: Any, totals: dict[str, Tensor], *, deviation: float, seed: int = 5) -> Any:
    """Totals with noise of `deviation` times each block's sensitivity."""
    generator = torch.Generator().manual_seed(seed)
    return {
        block.name: totals[block.name]
        + deviation
        * block.sensitivity
        * torch.randn(block.shape, generator=generator, dtype=torch.float64)
        for block in blocks
    }
