"""Blind sums from the hospital's side: the same model as with open sums, signed by its members."""

import asyncio
from pathlib import Path

import pytest

from client_sdk.events import OwnModel
from kernels.storage import encode
from tests.client_sdk.conversation.blind_study import BlindStudy


async def same_model(folder: Path, **how: str) -> None:
    models = {}
    for sums in ("open", how.pop("sums", "blind")):
        study = BlindStudy(folder / sums)
        async with study.app.router.lifespan_context(study.app):
            given = how if sums == "blind" else {"model": "served"}
            await study.begin(sums=sums, **given)
            found = await study.run()
            (run,) = await study.runs()
            assert run["status"] == "done"
            assert len({model.id for model in found.values()}) == 1
            assert not any(study.seen(name, OwnModel) for name in study.names)
            models[sums] = next(iter(found.values())).artifact.model
    # Homes of both studies deal rows alike (tests/dealing.py).
    assert encode(models["open"]) == encode(models["blind"])


@pytest.mark.parametrize("model", ["served", "members"])
def test_blind_and_open_sums_give_the_same_model_bit_for_bit(tmp_path: Path, model: str) -> None:
    asyncio.run(same_model(tmp_path, model=model))
