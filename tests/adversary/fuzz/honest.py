"""Honest runs to start from: every algorithm, every kind of run, with and without noise."""

from dataclasses import dataclass, replace
from functools import cache

from kernels.errors import NotFitted, ProgramError
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from tests.conformance import shadow


@dataclass(frozen=True)
class HonestRun:
    """A run, the model that it starts from, and its positions at which a sum is requested."""

    name: str
    kind: Kind
    session: Program
    parent: Model | None
    positions: tuple[Position, ...]

    @property
    def program(self) -> Program:
        """What the run computes."""
        return self.positions[0].program


@cache
def honest_runs() -> tuple[HonestRun, ...]:
    """Return small runs, which together have every algorithm that is installed."""
    found = []
    for name, program in shadow.programs(shadow.SMALL).items():
        session = _noisier(program)
        trained, model = _run(name, Kind.TRAIN, session, None)
        found.append(trained)
        for kind in (Kind.LINEAR, Kind.EVALUATE, Kind.UPDATE):
            try:
                found.append(_run(name, kind, session, model)[0])
            except (ProgramError, NotFitted):  # the session has no run of this kind
                continue
    return tuple(found)


def _noisier(session: Program) -> Program:
    """Return the program with noise that a site's budget allows."""
    if session.privacy is None:
        return session
    multipliers = (0.5,) * len(session.stages)
    noise = replace(session.privacy, multipliers=multipliers, evaluate=0.5, update=0.5)
    return replace(session, privacy=noise)


def _run(name: str, kind: Kind, session: Program, parent: Model | None) -> tuple[HonestRun, Model]:
    program = program_of(kind, session)
    members = shadow.sites_of(program, shadow.SMALL)
    position, seen = positions.start(program, parent), []
    while not position.finished:
        seen.append(position)
        encoding = shadow.encoding_of(position, len(members))
        total = encoding.decode(shadow.summed(position, members), contributors=len(members))
        position, _ = positions.after(position, total)
    model: Model = position.state.model
    return HonestRun(f"{name}, {kind}", kind, session, parent, tuple(seen)), model
