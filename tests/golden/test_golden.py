"""What was stored or sent by an earlier state of this code is read, and written alike."""

import json

import pytest

from kernels import storage
from kernels.model.artifact import Artifact
from kernels.rounds.broadcast import received
from kernels.rounds.program import Program
from privacy.identity import Identity
from privacy.securesum.client import Client
from privacy.securesum.messages import Task
from privacy.securesum.records import RECORDS
from privacy.securesum.terms import Terms
from tests.golden import contents

CHANGED = (
    "{} is not what this code writes: a format has changed. If that was not meant, find out what "
    "changed it (a renamed field, another STORED_AS, another order). If it was, raise the format's "
    "version, run `python -m tests.golden`, and say so in CHANGELOG.md."
)


@pytest.fixture(scope="module")
def built() -> dict[str, bytes]:
    return contents.files()


def golden(name: str) -> bytes:
    return (contents.HERE / name).read_bytes()


def test_every_golden_file_is_built_and_no_other_lies_here(built: dict[str, bytes]) -> None:
    here = {path.name for path in contents.HERE.iterdir() if path.suffix not in (".py", "")}
    assert here == set(built)
    assert all(len(data) < 10_000 for data in built.values())


@pytest.mark.parametrize("name", sorted(contents.files()))
def test_this_code_writes_the_golden_bytes(name: str, built: dict[str, bytes]) -> None:
    assert golden(name) == built[name], CHANGED.format(name)


def test_a_model_is_read_with_its_card_and_written_alike() -> None:
    card = json.loads(golden("model.card.json"))
    model_id = golden("model.id").decode()
    read = Artifact.from_bytes(golden("model.safetensors"), card, expected_id=model_id)
    assert read.id == model_id
    assert read.card.to_json().encode() == golden("model.card.json")
    assert storage.encode(read.model) == golden("model.safetensors")


def test_a_broadcast_is_received_and_written_alike() -> None:
    state = received(golden("broadcast.safetensors"), contents.PROGRAM, contents.STAGE)
    assert storage.encode(state, broadcast=True) == golden("broadcast.safetensors")


@pytest.mark.parametrize(
    ("name", "program"),
    [("program.json", contents.PROGRAM), ("private_program.json", contents.PRIVATE)],
)
def test_a_program_is_read_and_written_alike(name: str, program: Program) -> None:
    read = Program.from_json(golden(name).decode())
    assert read == program
    assert read.to_json().encode() == golden(name)


def test_terms_and_the_task_of_a_sum_are_read_and_written_alike() -> None:
    terms, task = Terms.decode(golden("terms.bin")), Task.decode(golden("task.bin"))
    assert (terms, task) == (contents.terms(), contents.task())
    assert (terms.encode(), task.encode()) == (golden("terms.bin"), golden("task.bin"))


def test_a_journal_is_replayed_and_its_records_are_written_alike() -> None:
    records, vault = contents.read_journal(golden("journal.txt"))
    client = Client.restore(Identity.from_bytes(contents.owner()), records, vault)
    assert client.journal.count == len(records)
    read = [RECORDS[record[1]].decode(record) for record in records]
    assert [record.encode() for record in read] == records
    assert {type(record) for record in read} == {*RECORDS.values()}, "every kind is in it"
