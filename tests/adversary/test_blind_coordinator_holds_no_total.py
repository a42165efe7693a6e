"""A coordinator of blind sums holds no total: not in its database, its logs or its memory.

The coordinator is a process of its own, as `veilgp serve` starts it. What it must not have is taken
from the hospitals, which verify and decode every total. Afterwards all that the coordinator has is
searched for it (`tests/adversary/haystack.py`): its tables; every byte of the files in its folder,
with deleted rows and the write-ahead log; what it has logged; and its memory while it still runs.
One hospital objects to every task, so that sealed states pass through the coordinator as well.

That the search finds what is there is shown by open sums, and by a marker in every coordinator.
"""

import asyncio
import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from benchmarks.federation import Federation
from client_sdk import GlobalModel
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from privacy.securesum.verification import VerifiedTotal
from tests.adversary.haystack import Needle, Search, needles_of
from tests.client_sdk.conversation.blind_study import STAGES, RemoteStudy, objects_once
from tests.e2e.warm import Warm

KERNEL = {"hidden": [8], "samples": 8, "seed": 1}
MARKER = np.random.default_rng(7).integers(-(2**59), 2**59, size=8)
"""What the coordinator's process is started with, so that it is in its memory all the time."""
MARKED = {"marker, int64 in base64"}


@dataclass(frozen=True)
class Over:
    """A run that is over, and its coordinator, which still runs.

    totals: what the hospitals have verified, as integers and decoded, by algorithm.
    """

    folder: Path
    pid: int
    log: str
    totals: Mapping[str, tuple[NDArray[np.int64], SecureTotal]]
    model: GlobalModel

    def search(self, *, of_model: bool, but_not: bytes = b"") -> Search:
        """Prepare to look for all totals, and for the model, but not for what `but_not` has."""
        needles = needles_of("marker", MARKER)
        for name, (integers, total) in self.totals.items():
            own = needles_of(name, integers, but_not=but_not)
            assert own, f"the total of {name} has something to look for"
            blocks = [total[block.name].ravel() for block in total.layout.blocks]
            for block in (*blocks, np.concatenate(blocks)):
                own += needles_of(name, block, but_not=but_not)
            needles += own
        return Search([*needles, *(self._of_model(but_not) if of_model else ())])

    def _of_model(self, but_not: bytes) -> list[Needle]:
        """Return the model's tensors, and the numbers in the text beside them."""
        tensors = safetensors.numpy.load(self.model.artifact.data)
        beside = tensors.pop("tree").tobytes().decode()
        numbers = np.array([float(text) for text in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", beside)])
        return [
            needle
            for values in (numbers, *tensors.values())
            for needle in needles_of("model", values, but_not=but_not)
        ]

    def in_files(self, search: Search) -> set[str]:
        """Return what is in the coordinator's tables, files and logs, and where."""
        database = self.folder / "coordinator" / "veilgp.sqlite"
        places = {**search.in_files(self.folder), **search.in_database(database)}
        return {f"{what} in {place}" for place, found in places.items() for what in found}

    def in_memory(self, search: Search) -> set[str]:
        """Return what is in the coordinator's memory."""
        try:
            return search.in_memory(self.pid)
        except PermissionError:
            pytest.skip("no process may read another's memory here; only files were searched")


@contextmanager
def over(folder: Path, monkeypatch: pytest.MonkeyPatch, **how: str) -> Iterator[Over]:
    """Run a session to its end, and remember the totals that hospitals come to know."""
    totals: list[tuple[NDArray[np.int64], SecureTotal]] = []
    decoded = VerifiedTotal.decoded

    def remembered(self: VerifiedTotal, encoding: Encoding) -> SecureTotal:
        totals.append((self.values.copy(), decoded(self, encoding)))
        return totals[-1][1]

    monkeypatch.setattr(VerifiedTotal, "decoded", remembered)
    objected = objects_once(monkeypatch) if how["sums"] == "blind" else None
    marker = base64.b64encode(MARKER.tobytes()).decode()
    settings = {"VEILGP_LOG_LEVEL": "debug", "MARKER": marker}
    with Federation.started(folder / "federation", environment=settings, launch=Warm) as federation:
        study = RemoteStudy(folder / "hospitals", federation)

        async def run() -> dict[str, GlobalModel]:
            async with study.http:
                await study.begin(kernel=KERNEL, **how)
                return await study.run()

        (model, *others) = asyncio.run(run()).values()
        assert {other.id for other in others} == {model.id}
        assert objected is None or len(objected) == len(STAGES), "states were sealed"
        each = {values.tobytes(): (values, total) for values, total in totals}
        assert (len(each), len(totals)) == (len(STAGES), len(STAGES) * len(study.names))
        coordinator = federation.coordinator
        assert coordinator is not None
        assert coordinator.running is not None
        yield Over(
            federation.folder,
            coordinator.running.pid,
            coordinator.words(),
            {stage["algorithm"]: own for stage, own in zip(STAGES, each.values(), strict=True)},
            model,
        )


def test_with_a_model_for_members_the_coordinator_has_no_total_and_nothing_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with over(tmp_path, monkeypatch, sums="blind", model="members") as run:
        # What the program releases is for the coordinator as well.
        released = json.dumps(run.model.artifact.card.to_plain()["evaluation"]).encode()
        search = run.search(of_model=True, but_not=released)
        assert run.in_files(search) == set()
        assert unexplained(run.log) == []
        assert run.in_memory(search) == MARKED


def test_with_a_served_model_the_coordinator_has_no_total_but_what_is_in_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a total is in the model if the bytes that everyone may download contain it.

    These are decoded numbers: the sums of the linear layer, which are its posterior, counts of
    residuals, and scores. The same totals as integers are in no model.
    """
    with over(tmp_path, monkeypatch, sums="blind", model="served") as run:
        artifact = run.model.artifact
        served = artifact.data + json.dumps(artifact.card.to_plain()).encode()
        search = run.search(of_model=False, but_not=served)
        assert run.in_files(search) == set()
        assert unexplained(run.log) == []
        assert run.in_memory(search) == MARKED


def test_the_same_search_finds_the_totals_of_open_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with over(tmp_path, monkeypatch, sums="open", model="served") as run:
        search = run.search(of_model=True)
        found = run.in_files(search)
        log = "coordinator/veilgp.sqlite-wal"
        assert found >= {
            f"moments, int64 in bytes in {log}",
            f"linear, int64 in bytes in {log}",
            f"evaluation, int64 in bytes in {log}",
            "evaluation, int64 in bytes in totals",
            "model, float64 in bytes in models",
        }
        in_memory = run.in_memory(search)
        assert in_memory >= MARKED
        assert in_memory & {f"{name}, int64 in bytes" for name in run.totals}


# -- the coordinator's log

LINE = re.compile(
    r"\S+Z [a-z]+ "
    r"(Started server process \[\d+\]|(listening on|page|console) http://[\d.:]+[a-z/]*"
    r"|[A-Z]+ [a-z{}/_-]+: \d{3}|stage \d, \d sums|[A-Za-z ().]+)"
    r"( (request|session|run)=[0-9a-f-]{32,36})*"
)
"""All that a coordinator logs, at the level `debug`, about runs that go well."""


def unexplained(log: str) -> list[str]:
    """Return the lines of a log in which a number could be something of the cohort's."""
    _, token, lines = log.partition("vgp_admin_")
    assert token
    return [line for line in lines.splitlines()[2:] if LINE.fullmatch(line.rstrip()) is None]


def test_a_log_with_a_statistic_is_noticed() -> None:
    plain = "2026-01-01T00:00:00.000Z debug stage 3, 4 sums run=" + 32 * "a"
    start = "vgp_admin_x\n\n"
    assert unexplained(start + plain) == []
    for told in ("stage 3, 4 sums of 384 rows", "the loss is 0.71", "the total is 17"):
        assert unexplained(start + plain.replace("stage 3, 4 sums", told))
