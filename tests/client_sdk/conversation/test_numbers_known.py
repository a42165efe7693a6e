"""Disclosure, card, ledger and session count what becomes known alike, in the same words."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from client_sdk.events import Disclosed
from client_sdk.terminal.command import application
from kernels.rounds.known import known
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import known_to
from tests.client_sdk.conversation.blind_study import BlindStudy
from tests.e2e import sessions


async def one_figure(folder: Path, sums: str, model: str) -> None:
    study = BlindStudy(folder)
    async with study.app.router.lifespan_context(study.app):
        await study.begin(name="one", sums=sums, model=model)
        models = await study.run()
    name = study.names[0]
    program = Program.from_json(sessions.program_text(study.session))
    found = known(program, members=3, blind=sums == "blind", members_only=model == "members")
    said = known_to(coordinator=found.coordinator, hospitals=found.hospitals)
    (disclosed,) = study.seen(name, Disclosed)
    assert said in str(disclosed)
    assert said in " ".join(repr(models[name].card).split())
    ledger = CliRunner().invoke(application(), ["ledger", "--home", str(folder / name)])
    assert said in ledger.output
    told = " ".join(study.session["in_words"])
    assert sums == "open" or said.partition(". ")[0] in told


@pytest.mark.parametrize(("sums", "model"), [("open", "served"), ("blind", "members")])
def test_join_card_ledger_and_session_say_the_same_numbers(
    tmp_path: Path, sums: str, model: str
) -> None:
    asyncio.run(one_figure(tmp_path, sums, model))
