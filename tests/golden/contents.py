"""What the golden files hold, built anew: from fixed numbers, without a clock and without chance.

No number is computed where processors may differ in a last bit: the tensors are given, and so is
the one figure of the card (the evidence) that comes from a decomposition.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kernels import storage
from kernels.features.spec import KernelSpec
from kernels.features.urk import weight_count
from kernels.layer.posterior import Hyperparameters
from kernels.layer.statistics import Statistics
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.model.model import Model
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import Scale, Shares, Standardiser
from kernels.tables.targets import Target
from privacy.encoding import Encoding
from privacy.layout import Block, Layout
from privacy.securesum.messages import Task
from privacy.securesum.simulator import SOURCE, Fault, Point, Simulation
from privacy.securesum.terms import Terms, default_terms

HERE = Path(__file__).parent
SITES, ELEMENTS = 4, 3
SCHEMA = Schema(
    (
        Numeric("age", "a", 0, 120),
        Numeric("lactate", "mmol/l", 0, 30, may_be_missing=True),
        Categorical("ward", ("medical", "surgical")),
    ),
    (Target("stay", "d", 0, 365),),
)
KERNEL = KernelSpec(
    inputs=5, samples=3, hidden=(4,), latent=2, shifter_inputs=2, shifter_hidden=3, seed=3
)
STAGE = 1
_JUDGED = evaluation.Spec(recalibrated=False)
PROGRAM = Program(
    SCHEMA,
    KERNEL,
    (moments.Spec(), exact.Spec(steps=3, penalties=(3.0,)), linear.Spec(), _JUDGED),
    max_rows=1000,
    held_out=0.25,
)
PRIVATE = Program(
    SCHEMA,
    KERNEL,
    (moments.Spec(), linear.Spec()),
    max_rows=1000,
    held_out=0.0,
    privacy=NoisePlan(multipliers=(4.0, 8.0), target_clip=2.5),
)
STANDARDISER = Standardiser(
    numeric=(Scale("age", 61.5, 16.0), Scale("lactate", 1.75, 0.5)),
    categorical=(Shares("ward", (0.75, 0.25)),),
    targets=(Scale("stay", 4.0, 2.5),),
)


def files() -> dict[str, bytes]:
    """Return the content of every golden file by its name."""
    made = artifact()
    return {
        "model.safetensors": made.to_bytes(),
        "model.card.json": made.card.to_json().encode(),
        "model.id": made.id.encode(),
        "broadcast.safetensors": storage.encode(broadcast_state(), broadcast=True),
        "program.json": PROGRAM.to_json().encode(),
        "private_program.json": PRIVATE.to_json().encode(),
        "terms.bin": terms().encode(),
        "task.bin": task().encode(),
        "journal.txt": journal(),
    }


def artifact() -> Artifact:
    """Return a finished model with its card."""
    features = torch.arange(KERNEL.features, dtype=torch.float64)
    model = replace(
        _model_so_far(),
        hyperparameters=Hyperparameters.of(noise_variance=0.25, prior_variance=2.0),
        statistics=Statistics(
            scatter=torch.diag(1 + features),
            cross=(features / 8)[:, None],
            target_squares=torch.tensor([96.0], dtype=torch.float64),
            count=90,
            rounding=2.0**-30,
        ),
    )
    made = Artifact.of(
        model,
        program=PROGRAM,
        members=3,
        sums=9,
        privacy=Privacy.of(SCHEMA, min_cohort=3, max_colluders=0),
        created=datetime(2026, 11, 16, 9, 30, tzinfo=UTC),
    )
    layer = tuple(replace(each, log_evidence=-123.5) for each in made.card.layer)
    return replace(made, card=replace(made.card, veilgp="0.1.0", layer=layer))


def broadcast_state() -> exact.State:
    """Return the state that the exact stage of the program begins with."""
    return exact.initial(PROGRAM.stages[STAGE], _model_so_far())


def _model_so_far() -> Model:
    return replace(PROGRAM.start(), standardiser=STANDARDISER, weights=_weights())


def _weights() -> Tensor:
    return torch.arange(weight_count(KERNEL), dtype=torch.float64) / 64 - 0.5


def terms() -> Terms:
    """Return a session's terms."""
    return default_terms(bytes(range(16)), SITES)


def task() -> Task:
    """Return the order of a sum."""
    layout = Layout((Block("gradient", (2,), 256.0, 2.0**-20), Block("rows", (), 1000.0, 1.0)))
    return Task(
        epoch_id=_bytes("epoch", 32),
        slot=2,
        statistic="exact/2",
        parameters=b"{}",
        state=_bytes("state", 32),
        encoding=Encoding.finest(layout, max_clients=SITES).digest(),
        length=layout.length,
        active=(0, 1, 3),
        proof=b"",
    )


def journal() -> bytes:
    """Return the journal of one of four sites, and the head that its vault keeps: a line each.

    Two sums, the first abandoned; another table and another cohort, both approved; an endorsed
    model; the end of the epoch, after which nothing is left in the vault but its head.
    """
    simulation = Simulation(SITES, terms=terms(), random=_stream())
    simulation.open_epoch()
    vectors = [np.full(ELEMENTS, site, dtype=np.uint64) for site in range(SITES)]
    simulation.faults = {(site, Point.UPLOAD): Fault.LATE for site in range(1, SITES)}
    simulation.sum(vectors)
    simulation.sum(vectors)
    site = simulation.sites[0]
    client, session = site.client, simulation.terms.session
    site.persist(client.approve_table(SOURCE, _bytes("table", 32), approved_by="Dr. Grey"))
    everyone = [each.identity.key for each in simulation.sites]
    staying = everyone[:-1]
    consents = [each.client.consent(session, everyone, staying) for each in simulation.sites]
    site.persist(client.change_cohort(SOURCE, session, staying, consents, approved_by="Dr. Grey"))
    epoch = simulation.epoch
    certificate = simulation.coordinator.slot.certificate
    assert certificate is not None
    site.persist(
        client.endorse(
            certificate,
            program=_bytes("program", 32),
            parent=None,
            data=_bytes("model", 64),
            state=_bytes("state", 32),
            results=b"{}",
        )
    )
    site.persist(client.end((session, epoch.run, epoch.number)))
    head = site.vault["head"]
    lines = [*(f"record {record.hex()}" for record in site.records), f"head {head.hex()}"]
    return "".join(f"{line}\n" for line in lines).encode()


def read_journal(data: bytes) -> tuple[list[bytes], dict[str, bytes]]:
    """Return the records and the vault in the golden file of a journal."""
    *records, head = (line.split() for line in data.decode().splitlines())
    return [bytes.fromhex(record) for _, record in records], {"head": bytes.fromhex(head[1])}


def owner() -> bytes:
    """Return the key of the site whose journal it is."""
    return Simulation(SITES, terms=terms(), random=_stream()).sites[0].identity.to_bytes()


def _stream() -> Callable[[int], bytes]:
    """Return a source of bytes that gives the same ones whenever it is begun."""

    def blocks() -> Iterator[int]:
        for number in range(1 << 20):
            yield from _bytes(f"stream {number}", 32)

    stream = blocks()
    return lambda count: bytes(next(stream) for _ in range(count))


def _bytes(name: str, count: int) -> bytes:
    return hashlib.shake_256(name.encode()).digest(count)
