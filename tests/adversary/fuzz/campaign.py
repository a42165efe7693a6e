"""A campaign: cases drawn from one seed, each of which can be repeated by its number alone."""

import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from kernels.rounds import position as positions
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.broadcast import received
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from tests.adversary.fuzz.conversations import Heard, conversation, differences
from tests.adversary.fuzz.damage import Stored, damaged_bytes, damaged_json, damaged_state
from tests.adversary.fuzz.honest import HonestRun, honest_runs
from tests.adversary.fuzz.hostile_programs import affordable, hostile_program
from tests.adversary.fuzz.hostile_totals import damaged_total
from tests.adversary.fuzz.neighbours import moved_too_far
from tests.adversary.fuzz.observing import (
    DECLARED,
    MEMBERS,
    Accepted,
    Entrance,
    Seen,
    before_rows,
    escaped,
    from_rows,
)
from tests.adversary.fuzz.sites import chosen, sites, tables

WAYS: Mapping[str, float] = {"state": 0.55, "total": 0.15, "program": 0.18, "conversation": 0.12}
"""What is hostile, and how many of the cases."""
MOST_SUMS = 4
"""The sums of a hostile program that are tried."""
SITES, SITES_AT_THE_DOOR, HOSPITALS = 6, 3, 3
PROGRAMS = 4
"""How many hostile programs are tried until one can be read."""
SLOW_S = 5.0


@dataclass(frozen=True)
class Finding:
    """A case in which what is seen of sites depends on their rows, or an error escapes."""

    case: str
    what: str
    seen: Mapping[str, Seen | Heard]

    def __str__(self) -> str:
        """Return the case, how to repeat it, and what was seen of which site."""
        lines = [f"{self.case}", f"    {self.what}"]
        return "\n".join([*lines, *(f"    {name}: {seen}" for name, seen in self.seen.items())])


@dataclass
class Campaign:
    """Cases from a seed; `entrances` maps whether there is noise to a hospital at its door.

    algorithm_for: returns the algorithm to try in the place of an honest one; broken twins use it.
    ways: what is hostile, with weights.
    """

    seed: int
    entrances: Mapping[bool, Entrance]
    algorithm_for: Callable[[Algorithm], Algorithm] = lambda own: own
    ways: Mapping[str, float] = field(default_factory=lambda: WAYS)
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    """Algorithm, kind of run and noise of the states that were computed over rows."""
    notes: Counter[str] = field(default_factory=Counter)

    def run(
        self,
        seconds: float,
        *,
        most_findings: int = 20,
        told: Callable[["Campaign"], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        first: int = 0,
    ) -> None:
        """Try cases for a time."""
        honest_runs()
        end, number = clock() + seconds, first
        while clock() < end and len(self.findings) < most_findings:
            self.case(number)
            number += 1
            told(self)

    def case(self, number: int) -> None:
        """Try one case, which is a function of the seed and its number."""
        chance = random.Random(f"{self.seed}/{number}")
        began = time.monotonic()
        (way,) = chance.choices(list(self.ways), list(self.ways.values()))
        tried = {
            "state": self._state,
            "total": self._total,
            "program": self._program,
            "conversation": self._conversation,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            name = tried[way](f"case {number} of seed {self.seed}", chance)
        self.counts["cases"] += 1
        self.counts[f"cases: hostile {way}"] += 1
        if time.monotonic() - began > SLOW_S:
            self.notes[f"slow: {name}"] += 1

    # -- hostile states

    def _state(self, case: str, chance: random.Random) -> str:
        run, position = _drawn(chance)
        algorithm = self.algorithm_for(position.algorithm)
        honest = _stored(position)
        how = chance.choice(("tree",) * 14 + ("unchecked",) * 5 + ("bytes",))
        state, done = None, "bytes"
        if how == "bytes":
            data = damaged_bytes(position.encoded, chance)
        else:
            fixed = 0.05 if how == "tree" else 0.0
            own, done = damaged_state(honest, _donors(run, chance), chance, fixed=fixed)
            data = own.encode() if how == "tree" else b""
            if how == "unchecked":
                state = own.unchecked()
        case = f"{case}: {run.name}, {algorithm.NAME}, {how}, {done}"
        if how != "unchecked":
            try:
                state = received(data, position.program, position.stage)
            except DECLARED as error:
                self.counts[f"refused as received: {error.code}"] += 1
                return case
            except Exception as error:  # noqa: BLE001
                self._found(case, "an error escapes from reading", {"any site": escaped(error)})
                return case
        place = run.kind, Position(position.program, position.stage, position.sum_index, state)
        self._compare(case, algorithm, *place, chance, checked=how != "unchecked")
        if (how == "unchecked" or chance.random() < 0.3) and algorithm is position.algorithm:
            self._at_the_door(case, *place, chance)
        return case

    def _compare(
        self,
        case: str,
        algorithm: Algorithm,
        kind: Kind,
        position: Position,
        chance: random.Random,
        *,
        checked: bool = True,
    ) -> dict[str, Any]:
        """Compare sites at a position; return the vectors of those that answer.

        checked: the state has passed what a site checks of every state.
        """
        program = position.program
        accepted = before_rows(algorithm, position.state, program, position.stage)
        if isinstance(accepted, Seen):
            self.counts[f"refused when tried: {accepted.code}"] += 1
            if not accepted.expected:
                self._found(case, "an error escapes before a row is read", {"any site": accepted})
            return {}
        noisy = program.privacy is not None
        self.reached[f"{algorithm.NAME}, {kind}{', noise' * noisy}"] += 1
        every = sites(program.schema, chance.randrange(4))
        names = list(chosen(every, chance, SITES))
        pairs = {name: from_rows(accepted, every[name]) for name in names}
        seen = {name: pair[0] for name, pair in pairs.items()}
        failed = sum(vector is None for _, vector in pairs.values())
        self.counts["vectors"] += len(pairs) - failed
        self.counts["vectors of sites that failed"] += failed
        self._judge(case, seen)
        if noisy and checked:
            self._neighbours(case, accepted, chance)
        return {name: vector for name, (_, vector) in pairs.items() if vector is not None}

    def _neighbours(self, case: str, accepted: Accepted, chance: random.Random) -> None:
        """Compare two sites that differ in one unit: the noise covers what it changes."""
        self.counts["pairs of neighbours"] += 1
        beyond = moved_too_far(accepted, chance)
        if beyond is not None:
            self._found(case, f"one unit changes more than is declared: {beyond}", {})

    def _at_the_door(
        self, case: str, kind: Kind, position: Position, chance: random.Random
    ) -> None:
        program, state = position.program, position.state
        every = sites(program.schema, chance.randrange(4))
        noisy = program.privacy is not None
        place = program, kind, position.stage, position.sum_index
        seen: dict[str, Seen] = {}
        for name in chosen(every, chance, SITES_AT_THE_DOOR):
            seen[name] = self.entrances[noisy].seen(*place, state, every[name])
            if seen[name].how == "no task":
                return
        self.counts[f"at the door: {next(iter(seen.values())).how}"] += 1
        self._judge(f"{case}, at the door", seen)
        for name, own in seen.items():
            if own.expected and own.charges != (own.how == "answered" and noisy):
                self._found(case, "a charge without an answer, or the other way", {name: own})

    def _judge(self, case: str, seen: Mapping[str, Seen]) -> None:
        if len(set(seen.values())) > 1:
            self._found(case, "what is seen depends on the rows", seen)
        elif not next(iter(seen.values())).expected:
            self._found(case, "an error escapes", seen)

    def _found(self, case: str, what: str, seen: Mapping[str, Seen | Heard]) -> None:
        self.findings.append(Finding(case, what, seen))

    # -- hostile totals

    def _total(self, case: str, chance: random.Random) -> str:
        run, position = _drawn(chance)
        algorithm = self.algorithm_for(position.algorithm)
        case = f"{case}: {run.name}, {algorithm.NAME}, total"
        accepted = before_rows(algorithm, position.state, position.program, position.stage)
        if isinstance(accepted, Seen):
            return case
        every = sites(position.program.schema, chance.randrange(4))
        _, vector = from_rows(accepted, every[chance.choice(("many rows", "no rows"))])
        if vector is None:
            return case
        honest = np.asarray(vector).view(np.int64) * MEMBERS
        added, done = damaged_total(honest, accepted.encoding, MEMBERS, chance)
        case = f"{case}, {done}"
        after = self._after(case, position, accepted, added.view(np.uint64), MEMBERS)
        if after is not None and not after.finished:
            case = f"{case}, then {after.algorithm.NAME}"
            self._summed(case, run.kind, after, chance)
        return case

    def _after(
        self, case: str, position: Position, accepted: Accepted, added: Any, members: int
    ) -> Position | None:
        """Return the position after a total, which need not be one of any sites."""
        try:
            total = accepted.encoding.decode(added, contributors=members)
            after = positions.after(position, total)[0]
        except DECLARED as error:
            self.counts[f"total refused: {error.code}"] += 1
            return None
        except Exception as error:  # noqa: BLE001
            self._found(case, "an error escapes from an update", {"any site": escaped(error)})
            return None
        self.counts["totals"] += 1
        return after

    # -- hostile programs

    def _program(self, case: str, chance: random.Random) -> str:
        run, session, _, done = self._hostile(case, chance)
        case = f"{case}: {run.name}, program, {done}"
        if session is None:
            return case
        try:
            program = program_of(run.kind, session)
            if not affordable(program):
                self.counts["programs too large to try"] += 1
                return case
            position = positions.start(program, run.parent)
        except DECLARED as error:
            self.counts[f"program refused: {error.code}"] += 1
            return case
        except Exception as error:  # noqa: BLE001
            self._found(case, "an error escapes from a program", {"any site": escaped(error)})
            return case
        self.counts["programs accepted"] += 1
        for _ in range(MOST_SUMS):
            if position.finished:
                break
            after = self._summed(f"{case}, sum {position.sum_index}", run.kind, position, chance)
            if after is None:
                break
            position = after
        return case

    def _hostile(
        self, case: str, chance: random.Random
    ) -> tuple[HonestRun, Program | None, str, str]:
        """Return a run of a hostile session, its program if it can be read, text, what was done."""
        run = chance.choice(honest_runs())
        for _ in range(PROGRAMS):
            try:
                text, done = self._hostile_text(run, chance)
                return run, Program.from_json(text), text, done
            except DECLARED as error:
                self.counts[f"program refused: {error.code}"] += 1
            except Exception as error:  # noqa: BLE001
                seen = {"any site": escaped(error)}
                self._found(f"{case}: {run.name}, program", "an error escapes", seen)
        return run, None, "", "no program"

    def _hostile_text(self, run: HonestRun, chance: random.Random) -> tuple[str, str]:
        if chance.random() < 0.3:
            return damaged_json(run.session.to_json(), chance)
        others = [each.session for each in honest_runs()]
        same_model = run.kind is not Kind.TRAIN and chance.random() < 0.9
        session, done = hostile_program(run.session, others, chance, same_model=same_model)
        return session.to_json(), done

    def _summed(
        self, case: str, kind: Kind, position: Position, chance: random.Random
    ) -> Position | None:
        """Compare sites at a position that follows from a program; return the position after."""
        algorithm = self.algorithm_for(position.algorithm)
        place = position.program, position.stage
        try:
            state = received(position.encoded, *place)
        except DECLARED as error:
            self.counts[f"refused as received: {error.code}"] += 1
            return None
        vectors = self._compare(case, algorithm, kind, position, chance)
        if chance.random() < 0.15 and algorithm is position.algorithm:
            self._at_the_door(case, kind, position, chance)
        accepted = before_rows(algorithm, state, *place)
        many = vectors.get("many rows")
        if many is None or isinstance(accepted, Seen):
            return None
        return self._after(case, position, accepted, many + many, 2)

    # -- whole conversations

    def _conversation(self, case: str, chance: random.Random) -> str:
        run, session, text, done = self._hostile(case, chance)
        case = f"{case}: {run.name}, conversation, {done}"
        if session is None:
            return case
        noisy = session.privacy is not None
        if chance.random() < 0.05:
            text = damaged_json(text, chance)[0]
        every = tables(session.schema, chance.randrange(4))
        rare = {"broken cells", "no rows"}
        names = sorted(set(every) - (set() if noisy or chance.random() < 0.1 else rare))
        given = {name: every[name] for name in chance.sample(names, HOSPITALS)}
        try:
            if not affordable(program_of(run.kind, session)):
                self.counts["programs too large to try"] += 1
                return case
            heard = conversation(session, text, run.kind, run.parent, given, chance)
        except DECLARED as error:
            self.counts[f"no run: {error.code}"] += 1
            return case
        for own in heard.values():
            self.counts[f"in conversation: {own.how} {own.code}".rstrip()] += 1
        self.counts["runs entered in conversation"] += any(own.entered for own in heard.values())
        vectors = sum(what == "vectors" for own in heard.values() for _, what, _ in own.requests)
        self.counts["vectors in conversation"] += vectors
        for what in differences(heard, noisy=noisy):
            self._found(case, what, heard)
        return case


def _drawn(chance: random.Random) -> tuple[HonestRun, Position]:
    """Draw an algorithm, with noise or without, and an honest position of it."""
    drawn = chance.choice(sorted(_by_algorithm()))
    return chance.choice(_by_algorithm()[drawn])


@cache
def _by_algorithm() -> Mapping[tuple[str, bool], Sequence[tuple[HonestRun, Position]]]:
    found: dict[tuple[str, bool], list[tuple[HonestRun, Position]]] = {}
    for run in honest_runs():
        for position in run.positions:
            key = position.algorithm.NAME, run.program.privacy is not None
            found.setdefault(key, []).append((run, position))
    return found


def _stored(position: Position) -> Stored:
    return Stored.read(position.encoded)


def _donors(run: HonestRun, chance: random.Random) -> Sequence[Stored]:
    """Return a later or earlier state of the run, and one of another run."""
    other = chance.choice(honest_runs())
    return [_stored(chance.choice(each.positions)) for each in (run, run, other)]
