"""An ensemble of networks drawn around the sites', distilled."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.ensembles.networks import outputs
from kernels.errors import ProgramError, StatisticsError
from kernels.features.seeded_random import normals
from kernels.rounds.compared import fedbe
from kernels.rounds.shared.local_network import train_at
from tests.conformance.algorithm import AlgorithmConformance
from tests.kernels.rounds import sums
from tests.kernels.rounds.network_rows import (
    DISTILLING,
    TRAINING,
    missed,
    sites_and_model,
    without_rows,
)

SPEC = fedbe.Spec(**TRAINING, **DISTILLING, draws=4)


class TestFedBE(AlgorithmConformance):
    algorithm = fedbe

    def spec(self) -> Any:
        return SPEC


def test_the_teacher_is_the_ensemble_of_sites_mean_and_draws_in_one_place() -> None:
    sites, model = sites_and_model()
    network, inputs = SPEC.network(model), SPEC.inputs(model)
    theirs = torch.stack([train_at(site, model, SPEC, SPEC.start(model), turn=0) for site in sites])
    mean, spread = theirs.mean(0), theirs.std(0, correction=0)
    drawn = mean + spread * normals(SPEC.seed, "fedbe", 4, len(mean))
    said = outputs(network, torch.cat([theirs, mean[None], drawn]), inputs)
    noise = missed(sites, model, lambda site, x: outputs(network, theirs[site], x))
    last = sums.after_all(fedbe, SPEC, model, [*sites, without_rows(sites[0])])
    assert torch.allclose(last.mean, mean, atol=1e-6)
    assert torch.allclose(last.teacher.mean, said.mean(0), atol=1e-5)
    expected = said.var(0, correction=0) + noise
    assert torch.allclose(last.teacher.variance, expected, rtol=1e-3)


def test_nobodys_rows_train_nothing() -> None:
    sites, model = sites_and_model()
    with pytest.raises(StatisticsError, match="no site has rows"):
        sums.after_all(fedbe, SPEC, model, [without_rows(sites[0])])
    with pytest.raises(ProgramError, match="draws"):
        replace(SPEC, draws=-1)
