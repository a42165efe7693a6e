"""An ensemble of trained networks, distilled."""

from typing import Any

import pytest
import torch

from kernels.ensembles.networks import outputs
from kernels.ensembles.student_network import predict
from kernels.errors import StatisticsError
from kernels.rounds.compared import one_shot
from kernels.rounds.shared.local_network import train_at
from kernels.rounds.site.site import Part
from tests.conformance.algorithm import AlgorithmConformance
from tests.kernels.rounds import sums
from tests.kernels.rounds.network_rows import (
    DISTILLING,
    TRAINING,
    missed,
    sites_and_model,
    without_rows,
)

SPEC = one_shot.Spec(**TRAINING, **DISTILLING)


class TestOneShot(AlgorithmConformance):
    algorithm = one_shot

    def spec(self) -> Any:
        return SPEC


def test_the_teacher_is_the_ensemble_of_all_networks_in_one_place() -> None:
    sites, model = sites_and_model()
    network, inputs = SPEC.network(model), SPEC.inputs(model)
    trained = [train_at(site, model, SPEC, SPEC.start(model), turn=0) for site in sites]
    said = outputs(network, torch.stack(trained), inputs)
    noise = missed(sites, model, lambda site, x: outputs(network, trained[site], x))
    last = sums.after_all(one_shot, SPEC, model, [*sites, without_rows(sites[0])])
    assert torch.allclose(last.teacher.mean, said.mean(0), atol=1e-8)
    assert torch.allclose(last.teacher.variance, said.var(0, correction=0) + noise, rtol=1e-4)
    student = SPEC.lesson.taught(SPEC.student(model), last.teacher, inputs)
    served = last.model.networks_of("one_shot")
    assert torch.equal(served.samples, student[None])
    assert served.rows == sum(site.count(Part.TRAINING) for site in sites)
    said, by_itself = served.predict(inputs), predict(SPEC.student(model), student, inputs)
    assert torch.equal(said.mean, by_itself.mean)
    assert torch.equal(said.variance, by_itself.variance)


def test_nobodys_rows_train_nothing() -> None:
    sites, model = sites_and_model()
    with pytest.raises(StatisticsError, match="no site has rows"):
        sums.after_all(one_shot, SPEC, model, [without_rows(sites[0])])
