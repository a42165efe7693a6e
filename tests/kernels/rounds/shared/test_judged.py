"""What a phase 1 keeps; `ChosenByHeldOutError` has what each algorithm makes of it."""

import pytest
import torch

from kernels.errors import ProgramError
from kernels.layer.posterior import Hyperparameters
from kernels.rounds.shared import judged
from kernels.rounds.shared.judged import MARGIN, Kept, Progress


def _kept(error: float | None, *, run: int = 0, step: int = 0) -> Kept:
    scales = Hyperparameters.of(noise_variance=1.0, prior_variance=1.0, targets=1)
    return Kept(error, torch.zeros(1, dtype=torch.float64), scales, run, step)


def test_a_pass_is_judged_by_its_own_errors_alone() -> None:
    history = [Progress(0, 0, 1.0, 0.1), Progress(1, 0, 1.0, 0.8)]
    before, now = _kept(0.8, run=1), _kept(0.5, run=1, step=1)
    assert judged.kept(now, before, history) is now
    assert judged.kept(_kept(0.9, run=1, step=1), before, history) is before


def test_ties_between_passes_are_not_decided_by_rounding() -> None:
    first = _kept(1.0)
    assert judged.better(None, first) is first
    assert judged.better(first, _kept(1 - MARGIN / 2, run=1)) is first
    clearly = _kept(1 - 2 * MARGIN, run=1)
    assert judged.better(first, clearly) is clearly


def test_patience_counts_from_what_is_kept() -> None:
    kept = _kept(1.0, step=3)
    assert [judged.stalled(kept, step=step, patience=2) for step in (4, 5)] == [False, True]
    assert not judged.stalled(kept, step=100, patience=0)


def test_without_held_out_rows_there_is_nothing_to_choose_by() -> None:
    judged.check_choice(1, None, "penalties")
    judged.check_choice(2, 0.5, "penalties")
    with pytest.raises(ProgramError, match="several penalties"):
        judged.check_choice(2, None, "penalties")
