"""Each private way to train a kernel, with the real coordinator and the real SDK, to its end.

The randomness of hospitals, their noise and subsamples, is fixed here, so that a run's model is
exactly that of `simulate`.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import hospitals
from client_sdk import simulate, site_of_home
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.storage import encode
from privacy import noise
from tests.e2e import sessions
from tests.e2e.private_study import Study

TABLES = {
    mix.name: {
        **hospitals.patients(mix, 60, 3),
        "patient": np.array([f"{mix.name}-{i // 2}" for i in range(60)]),
    }
    for mix in hospitals.MIXES[:3]
}
MOMENTS = {"algorithm": "moments", "parameters": {"from_bounds": True}}
EXACT = {"algorithm": "private_exact", "parameters": {"steps": 1, "penalty": 1.0}}
ELBO = {"algorithm": "elbo", "parameters": {"steps": 3, "sampling_rate": 0.5}}
LINEAR = {"algorithm": "linear"}
ROUTES = {"private_exact": (EXACT, 2), "elbo": (ELBO, 3)}
"""A route and its number of sums."""


def fixed_noise(deviation: int, count: int) -> NDArray[np.int64]:
    return (np.arange(count, dtype=np.int64) % 5 - 2) * (deviation // 16)


def fixed_octets(count: int) -> bytes:
    return hashlib.shake_256(b"who is in a sample").digest(count)


def new_session(route: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        **sessions.NEW,
        "schema": {**hospitals.SCHEMA, "patient": "patient"},
        "kernel": {"architecture": "rbf", "samples": 3, "seed": 1},
        "stages": [MOMENTS, route, LINEAR],
        "privacy": {
            "differential_privacy": True,
            "epsilon": 8.0,
            "delta": 1e-6,
            "max_rows_per_patient": 2,
            "max_colluders": 1,
            "min_cohort": 3,
        },
    }


async def trained(folder: Path, route: Mapping[str, Any], sums: int) -> None:
    study = Study(folder, new_session(route), TABLES)
    async with study.app.router.lifespan_context(study.app):
        await study.begin()
        joining = [study.joined(name) for name in TABLES]
        await study.approve()
        await study.start()
        done, _ = await asyncio.wait(joining, timeout=120, return_when=asyncio.FIRST_EXCEPTION)
        models = [task.result() for task in done]
        assert len(models) == len(TABLES)
        report = await study.admin("GET", f"{study.path}/privacy")

    planned = study.session["budget"]["run_costs"]
    assert [each["statistic"].partition("/")[0] for each in report["releases"]] == (
        [route["algorithm"]] * sums + ["linear"]
    )
    rate = route["parameters"].get("sampling_rate", 1.0)
    assert [each["sampling_rate"] for each in report["releases"]] == [rate] * sums + [1.0]
    assert 0.99 * planned <= report["spent"] <= planned <= 8.0
    for name in TABLES:
        left, spent = study.spent(name)
        assert left == sums + 1
        assert spent == pytest.approx(report["spent"], rel=1e-6), "both ledgers say the same"
    card = models[0].artifact.card.privacy
    assert (card.unit, card.releases, card.delta) == ("patient", sums + 1, 1e-6)
    assert card.epsilon == pytest.approx(report["spent"])

    program = Program.from_json(sessions.program_text(study.session))
    sites = [site_of_home(program, table, folder / name) for name, table in TABLES.items()]
    expected = simulate(program, sites, secure=False, honest=report["honest"], source=fixed_noise)
    assert encode(models[0].artifact.model) == encode(expected.model)


@pytest.mark.parametrize("name", ROUTES)
def test_a_private_run_is_charged_as_planned_and_gives_the_model_of_its_simulation(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(noise.draw.__kwdefaults__, "source", fixed_noise)
    monkeypatch.setitem(Site.__init__.__kwdefaults__, "randomness", fixed_octets)
    asyncio.run(trained(tmp_path, *ROUTES[name]))
