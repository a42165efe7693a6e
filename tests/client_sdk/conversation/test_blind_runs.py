"""Blind sums from the hospital's side: the same model as with open sums, signed by its members."""

import asyncio
from pathlib import Path

import pytest

from client_sdk.events import OwnModel
from kernels.storage import encode
from tests.client_sdk.conversation.blind_study import BlindStudy
from tests.stores import Store


async def same_model(folder: Path, store: Store, model: str) -> None:
    models = {}
    for sums, owner in (("open", "served"), ("blind", model)):
        study = BlindStudy(folder / sums, **store)
        async with study.app.router.lifespan_context(study.app):
            await study.begin(name=sums, sums=sums, model=owner)
            found = await study.run()
            (run,) = await study.runs()
            assert run["status"] == "done"
            assert len({model.id for model in found.values()}) == 1
            assert not any(study.seen(name, OwnModel) for name in study.names)
            models[sums] = next(iter(found.values())).artifact.model
    # Homes of both studies deal rows alike (tests/dealing.py).
    assert encode(models["open"]) == encode(models["blind"])


@pytest.mark.parametrize(
    ("model", "store"),
    [
        ("served", "sqlite"),
        ("members", "sqlite"),
        pytest.param("members", "postgresql", marks=pytest.mark.slow),
    ],
    indirect=["store"],
)
def test_blind_and_open_sums_give_the_same_model_bit_for_bit(
    tmp_path: Path, store: Store, model: str
) -> None:
    asyncio.run(same_model(tmp_path, store, model))
