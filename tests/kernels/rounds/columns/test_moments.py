"""Federated standardisation."""

from typing import Any

from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.site.site import Site
from tests.conformance.algorithm import EqualToPooled
from tests.kernels.rounds import tables


class TestMoments(EqualToPooled):
    algorithm = moments

    def spec(self) -> Any:
        return moments.Spec()

    def model(self, sites: list[Site]) -> Model:
        return Model(tables.SCHEMA, tables.KERNEL, 1000)


def test_other_divisions_of_the_rows_standardise_alike_to_the_last_bit() -> None:
    sites = [tables.site(seed=seed) for seed in range(7)]
    assert tables.fitted(sites).standardiser == tables.fitted([tables.together(sites)]).standardiser
