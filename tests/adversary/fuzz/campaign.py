"""A campaign: cases drawn from one seed, each of which can be repeated by its number alone."""

import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kernels.errors import KernelsError
from kernels.rounds import position as positions
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.broadcast import received
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import program_of
from privacy.errors import PrivacyError
from tests.adversary.fuzz.damage import Stored, damaged_bytes, damaged_json, damaged_state
from tests.adversary.fuzz.honest import HonestRun, honest_runs
from tests.adversary.fuzz.observing import (
    DECLARED,
    Entrance,
    Seen,
    before_rows,
    escaped,
    from_rows,
)
from tests.adversary.fuzz.sites import chosen, sites

MOST_SUMS = 4
"""The sums of a hostile program that are tried."""
LARGEST = 64
"""Programs with larger layers or more steps are accepted, and would take too long here."""
SITES, SITES_AT_THE_DOOR = 6, 3
SLOW_S = 5.0


@dataclass(frozen=True)
class Finding:
    """A case in which what is seen of sites depends on their rows, or an error escapes."""

    case: str
    what: str
    seen: Mapping[str, Seen]

    def __str__(self) -> str:
        """Return the case, how to repeat it, and what was seen of which site."""
        lines = [f"{self.case}", f"    {self.what}"]
        return "\n".join([*lines, *(f"    {name}: {seen}" for name, seen in self.seen.items())])


@dataclass
class Campaign:
    """Cases from a seed; `entrances` maps whether there is noise to a hospital at its door.

    algorithm_for: returns the algorithm to try in the place of an honest one; broken twins use it.
    """

    seed: int
    entrances: Mapping[bool, Entrance]
    algorithm_for: Callable[[Algorithm], Algorithm] = lambda own: own
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def run(
        self,
        seconds: float,
        *,
        most_findings: int = 20,
        told: Callable[["Campaign"], None] = lambda _: None,
        first: int = 0,
    ) -> None:
        """Try cases for a time."""
        honest_runs()
        end, number = time.monotonic() + seconds, first
        while time.monotonic() < end and len(self.findings) < most_findings:
            self.case(number)
            number += 1
            told(self)

    def case(self, number: int) -> None:
        """Try one case, which is a function of the seed and its number."""
        chance = random.Random(f"{self.seed}/{number}")
        began = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if chance.random() < 0.2:
                name = self._program(number, chance)
            else:
                name = self._state(number, chance)
        self.counts["cases"] += 1
        if time.monotonic() - began > SLOW_S:
            self.notes[f"slow: {name}"] += 1

    # -- hostile states

    def _state(self, number: int, chance: random.Random) -> str:
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
        case = f"case {number} of seed {self.seed}: {run.name}, {algorithm.NAME}, {how}, {done}"
        if how != "unchecked":
            try:
                state = received(data, position.program, position.stage)
            except DECLARED as error:
                self.counts[f"refused as received: {error.code}"] += 1
                return case
            except Exception as error:  # noqa: BLE001
                self._found(case, "an error escapes from reading", {"any site": escaped(error)})
                return case
        self._compare(case, algorithm, position.program, position.stage, state, chance)
        if (how == "unchecked" or chance.random() < 0.3) and algorithm is position.algorithm:
            self._at_the_door(case, run, position, state, chance)
        return case

    def _compare(
        self,
        case: str,
        algorithm: Algorithm,
        program: Program,
        stage: int,
        state: Any,
        chance: random.Random,
    ) -> dict[str, Any]:
        """Compare sites at a state; return their vectors if all of them answer."""
        accepted = before_rows(algorithm, state, program, stage)
        if isinstance(accepted, Seen):
            self.counts[f"refused when tried: {accepted.code}"] += 1
            if not accepted.expected:
                self._found(case, "an error escapes before a row is read", {"any site": accepted})
            return {}
        self.reached[algorithm.NAME] += 1
        every = sites(program.schema, chance.randrange(4))
        names = list(chosen(every, chance, SITES))
        pairs = {name: from_rows(accepted, every[name]) for name in names}
        seen = {name: pair[0] for name, pair in pairs.items()}
        failed = sum(vector is None for _, vector in pairs.values())
        self.counts["vectors"] += len(pairs) - failed
        self.counts["vectors of sites that failed"] += failed
        self._judge(case, seen)
        return {name: vector for name, (_, vector) in pairs.items() if vector is not None}

    def _at_the_door(
        self, case: str, run: HonestRun, position: Position, state: Any, chance: random.Random
    ) -> None:
        every = sites(run.program.schema, chance.randrange(4))
        entrance = self.entrances[run.program.privacy is not None]
        place = run.program, run.kind, position.stage, position.sum_index
        seen: dict[str, Seen] = {}
        for name in chosen(every, chance, SITES_AT_THE_DOOR):
            seen[name] = entrance.seen(*place, state, every[name])
            if seen[name].how == "no task":
                return
        self.counts[f"at the door: {next(iter(seen.values())).how}"] += 1
        self._judge(f"{case}, at the door", seen)
        for name, own in seen.items():
            charged = own.how == "answered" and run.program.privacy is not None
            if own.expected and own.charges != charged:
                self._found(case, "a charge without an answer, or the other way", {name: own})

    def _judge(self, case: str, seen: Mapping[str, Seen]) -> None:
        if len(set(seen.values())) > 1:
            self._found(case, "what is seen depends on the rows", seen)
        elif not next(iter(seen.values())).expected:
            self._found(case, "an error escapes", seen)

    def _found(self, case: str, what: str, seen: Mapping[str, Seen]) -> None:
        self.findings.append(Finding(case, what, seen))

    # -- hostile programs

    def _program(self, number: int, chance: random.Random) -> str:
        run = chance.choice(honest_runs())
        text, done = damaged_json(run.session.to_json(), chance)
        case = f"case {number} of seed {self.seed}: {run.name}, program, {done}"
        self.counts["programs"] += 1
        try:
            session = Program.from_json(text)
            program = program_of(run.kind, session)
            if not affordable(program):
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
            after = self._summed(f"{case}, sum {position.sum_index}", position, chance)
            if after is None:
                break
            position = after
        return case

    def _summed(self, case: str, position: Position, chance: random.Random) -> Position | None:
        algorithm = self.algorithm_for(position.algorithm)
        place = position.program, position.stage
        try:
            state = received(position.encoded, *place)
        except DECLARED as error:
            self.counts[f"refused as received: {error.code}"] += 1
            return None
        vectors = self._compare(case, algorithm, *place, state, chance)
        accepted = before_rows(algorithm, state, *place)
        many = vectors.get("many rows")
        if many is None or isinstance(accepted, Seen):
            return None
        try:
            total = accepted.encoding.decode(many + many, contributors=2)
            return positions.after(position, total)[0]
        except (KernelsError, PrivacyError):
            return None
        except Exception as error:  # noqa: BLE001
            # The same everywhere: it says nothing about one site's rows.
            self.notes[f"update of {algorithm.NAME}: {type(error).__name__}"] += 1
            return None


def affordable(program: Program) -> bool:
    """Return whether a program is small enough to be tried here; a site's recipes limit it."""
    kernel = program.kernel
    sizes = [kernel.inputs, kernel.samples, kernel.latent, kernel.shifter_inputs]
    sizes += [kernel.shifter_hidden, *kernel.hidden]
    for spec in program.stages:
        sizes += _integers(vars(spec), without="public")
    return max(sizes) <= LARGEST


def _integers(value: Any, without: str = "") -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name != without and "seed" not in name:
                yield from _integers(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _integers(each)
    elif type(value) is int:
        yield value


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
