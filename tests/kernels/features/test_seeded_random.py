"""Seeded random numbers are the same everywhere and have the stated distributions."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from kernels.features.seeded_random import normals, uniforms


def test_known_values_never_change() -> None:
    # A change of these values changes the kernel at every site: it needs a new spec version.
    assert uniforms(1, "frequencies", 2).tolist() == [0.8107141642826224, 0.21116148042394867]
    assert normals(1, "frequencies", 2).tolist() == [0.8805310884490609, -0.8023976692929864]


def test_seed_and_label_each_give_an_independent_stream() -> None:
    streams = [
        normals(seed, label, 2000) for seed, label in [(1, "a"), (2, "a"), (1, "b"), (1, "ab")]
    ]
    correlation = torch.corrcoef(torch.stack(streams))
    assert (correlation - torch.eye(4)).abs().max() < 0.1


def test_normals_are_normal_and_rows_are_a_prefix() -> None:
    table = normals(3, "frequencies", 20_000, 2)
    assert kstest(table.flatten().numpy(), "norm").pvalue > 1e-3
    assert torch.equal(table[:7], normals(3, "frequencies", 7, 2))
    assert torch.equal(table * 2**30, (table * 2**30).round())


def test_uniforms_reach_neither_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 2**64 - 1], dtype="<u8")
    monkeypatch.setattr("kernels.features.seeded_random._words", lambda *_: ends)
    least, greatest = uniforms(0, "ends", 2).tolist()
    assert 0 < least < greatest < 1
    assert torch.isfinite(normals(0, "ends", 2)).all()
