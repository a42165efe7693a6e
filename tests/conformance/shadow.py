"""Shadow mode: the same totals, replayed under other processor and library settings.

    python -m tests.conformance.shadow [--small]

A reference process runs programs with every algorithm and stores each state and each total. Further
processes, with other BLAS code paths, vector instructions or threads, replay every update from the
stored state before it. The table shows, by algorithm and setting, how many sums were replayed, how
many elements were one step off, and whether a state differed by more than that. Budgets in
`kernels.rounds` are ten times the most in this table.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import storage
from kernels.errors import StateDiffers
from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds import position as positions
from kernels.rounds.agreement import deviations
from kernels.rounds.algorithm import contributed
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import distillation, elbo, exact, fedavg, private_exact, search
from kernels.rounds.layer import completion, linear, linear_two_sums, outcomes, refinement, update
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.shared.public_set import columns_of
from kernels.rounds.site.site import Part, Site
from kernels.rounds.task import noise_multiplier
from privacy import noise
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import private, tables

REFERENCE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "the same": {},
    "2 threads": {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
    },
    "torch without vectors": {"ATEN_CPU_CAPABILITY": "default"},
    "MKL AVX2": {"MKL_CBWR": "AVX2"},
    "MKL compatible": {"MKL_CBWR": "COMPATIBLE"},
    "OpenBLAS Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "numpy without AVX2": {"NPY_DISABLE_CPU_FEATURES": "X86_V3"},
}
ALL_AT_ONCE = {name: value for each in SETTINGS.values() for name, value in each.items()}


@dataclass(frozen=True)
class Size:
    """How large the programs are: features, rows a site, steps of training, epochs of students."""

    samples: int
    rows: int
    steps: int
    epochs: int
    hidden: tuple[int, ...]


SMALL = Size(samples=6, rows=40, steps=2, epochs=2, hidden=(6,))
LARGE = Size(samples=100, rows=300, steps=30, epochs=30, hidden=(60, 60))


_SIZES = {"small": SMALL, "large": LARGE}


def programs(size: Size) -> dict[str, Program]:
    """Return programs with every algorithm, with and without differential privacy."""
    whole = tables.table(60 if size is LARGE else 8, seed=77)
    labelled = columns_of(whole)
    public = columns_of({name: whole[name] for name in ("age", "lactate", "ward")})
    students = {
        "public": public,
        "extra_rows": 10 * size.rows if size is LARGE else 4,
        "distillation_epochs": size.epochs,
        "hidden": size.hidden,
    }
    judged = recalibration.Spec(min_rows=1), evaluation.Spec()
    rounds = 2 if size is SMALL else 4
    plain: dict[str, tuple[Any, ...]] = {
        "exact": (exact.Spec(steps=size.steps, penalties=(3.0,)), linear.Spec(), *judged),
        "fedavg": (fedavg.Spec(rounds=rounds, local_steps=3), linear.Spec()),
        "distillation": (
            distillation.Spec(
                public=labelled,
                rounds=rounds,
                local_steps=3,
                distillation_steps=size.steps,
                alphas=(10.0,),
            ),
            linear_two_sums.Spec(),
            update.Spec(),
        ),
        "students": (
            linear.Spec(),
            predictive.Spec(**students, cycles=1, cycle_epochs=2, cycle_samples=2),
            beta.Spec(points=5),
            *judged,
        ),
        "linear experts": (
            linear.Spec(),
            predictive.Spec(**students, expert=predictive.Expert.LINEAR),
        ),
        "fedbe": (fedbe.Spec(**students, epochs=2, draws=3),),
        "one_shot": (one_shot.Spec(**students, epochs=2),),
        "fedpa": (fedpa.Spec(rounds=2, epochs=3, hidden=size.hidden),),
        "fedyogi": (fedyogi.Spec(rounds=2, epochs=2, hidden=size.hidden),),
        "ep_mcmc": (ep_mcmc.Spec(hidden=size.hidden, cycles=1, cycle_epochs=2, cycle_samples=2),),
    }
    noisy: dict[str, tuple[Any, ...]] = {
        "private exact": (
            private_exact.Spec(steps=min(size.steps, 4)),
            linear.Spec(),
            *judged,
        ),
        "private elbo": (elbo.Spec(steps=size.steps, sampling_rate=0.5), refinement.Spec()),
        "private linear": (linear.Spec(), refinement.Spec(), update.Spec()),
    }
    kernel = replace(tables.KERNEL, samples=size.samples)
    found = {
        name: Program(tables.SCHEMA, kernel, (moments.Spec(), *stages), max_rows=1000, held_out=0.4)
        for name, stages in plain.items()
    }
    beside = replace(kernel, linear_part=True)
    found["a linear part"] = replace(found["exact"], kernel=beside)
    fitted, rows = outcomes.Spec(sums=4 if size is SMALL else 12), moments.Spec(min_sites=1)
    step = exact.Spec(steps=size.steps, penalties=(3.0,))
    found["every kind of target"] = Program(
        small.MIXED,
        kernel,
        (rows, step, linear.Spec(), fitted, completion.Spec(), update.Spec()),
        max_rows=1000,
        held_out=0.4,
    )
    found["outcomes alone"] = Program(
        small.ALONE,
        beside,
        (rows, fedavg.Spec(rounds=rounds, local_steps=3), fitted),
        max_rows=1000,
        held_out=0.4,
    )
    recipes = (
        search.Recipe(name="linear", kernel=0, steps=1),
        search.Recipe(name="deep", kernel=1, steps=size.steps, penalty=3.0),
    )
    line = KernelSpec(architecture=Architecture.LINEAR, inputs=kernel.inputs)
    found["a choice of kernels"] = Program(
        small.MIXED,
        line,
        (
            moments.Spec(min_sites=1, curves=True),
            search.Spec(recipes=recipes),
            linear.Spec(),
            fitted,
            completion.Spec(),
        ),
        max_rows=1000,
        held_out=0.4,
        choices=(line, kernel),
    )
    crude = KernelSpec(architecture=Architecture.RBF, inputs=kernel.inputs, samples=3, seed=3)
    beside = crude, replace(crude, seed=4)
    recipes = tuple(
        search.Recipe(name=f"{place}", kernel=place, steps=1) for place in range(len(beside))
    )
    found["two kernels"] = Program(
        tables.SCHEMA,
        crude,
        (
            moments.Spec(),
            search.Spec(recipes=recipes),
            linear.Spec(),
            completion.Spec(),
            *judged,
            update.Spec(),
        ),
        max_rows=1000,
        held_out=0.4,
        choices=beside,
    )
    few = replace(private.KERNEL, samples=min(size.samples, 40))
    for name, stages in noisy.items():
        found[name] = private.program(moments.Spec(), *stages, kernel=few, multiplier=0.1)
    found["private outcomes"] = private.program(
        moments.Spec(),
        linear.Spec(),
        outcomes.Spec(),
        update.Spec(),
        schema=private.MIXED,
        kernel=few,
        multiplier=0.1,
    )
    return found


def sites_of(program: Program, size: Size) -> list[Site]:
    """Return three sites, with rows to add where the program updates a layer."""
    found = []
    for seed in range(3):
        if program.privacy is not None:
            site = private.site(private.table(size.rows, seed=seed), program.schema)
        elif program.schema.outcomes:
            site = small.site(size.rows, seed=seed, schema=program.schema, held_out=0.4)
        else:
            site = tables.site(size.rows, seed=seed, held_out=0.4)
        added = site.records[Part.CALIBRATION].between(slice(0, 3))
        more = {Part.ADDED: added} if any(type(s) is update.Spec for s in program.stages) else {}
        dealing = tables.DEALING if program.privacy is None else private.DEALING
        digest = bytes([seed]) * 32
        found.append(Site({**site.parts, **more}, digest=digest, dealing=dealing))
    return found


def record(where: Path, name: str, program: Program, size: Size) -> None:
    """Run a program, and store every state with the total that follows it."""
    sites, position = sites_of(program, size), positions.start(program, None)
    while not position.finished:
        file = _file(where, name, position)
        file.with_suffix(".state").write_bytes(storage.encode(position.state))
        added = summed(position, sites)
        np.save(file.with_suffix(".npy"), added)
        total = encoding_of(position, len(sites)).decode(added, contributors=len(sites))
        position, _ = positions.after(position, total)
    _file(where, name, position).with_suffix(".state").write_bytes(storage.encode(position.state))


def summed(position: Position, sites: Sequence[Site]) -> NDArray[np.uint64]:
    """Return the encoded sum that a position asks for, with noise if the program has any."""
    encoding = encoding_of(position, len(sites))
    seen = restore(storage.encode(position.state, broadcast=True))
    source = noise.approximate(np.random.default_rng(position.sum_index))
    added = np.zeros(encoding.layout.length, dtype="<u8")
    for site in sites:
        blocks = contributed(position.algorithm, seen, site)
        if encoding.share_deviations:
            drawn = noise.draw(encoding, source=source).once()
            added += encoding.encode(blocks, noise=drawn)
        else:
            added += encoding.encode(blocks)
    return added


def replayed(where: Path, name: str, program: Program) -> Iterator[tuple[Position, Position]]:
    """Yield, for every recorded sum, the position before it and the one replayed after it."""
    yield from (
        (before, positions.after(before, total_after(where, name, before))[0])
        for before in recorded(where, name, program)
        if not before.finished
    )


def recorded(where: Path, name: str, program: Program) -> Iterator[Position]:
    """Yield the recorded positions in order."""
    files = sorted(where.glob(f"{name}.*.state"), key=lambda file: int(file.name.split(".")[1]))
    for file in files:
        _, index, stage, _ = file.name.split(".")
        yield Position(program, int(stage), int(index), restore(file.read_bytes()))


def total_after(where: Path, name: str, before: Position) -> SecureTotal:
    """Return the recorded total of the sum that a position asks for."""
    added = np.load(_file(where, name, before).with_suffix(".npy"))
    return encoding_of(before, 3).decode(added, contributors=3)


def encoding_of(position: Position, members: int) -> Encoding:
    """Return the encoding of the sum that a position asks for."""
    return Encoding.of_sum(
        position.algorithm.layout(position.state),
        multiplier=noise_multiplier(position.program, position.stage),
        honest=members,
        members=members,
    )


def _file(where: Path, name: str, position: Position) -> Path:
    return where / f"{name}.{position.sum_index}.{position.stage}.x"


Found = dict[str, tuple[int, int, list[str]]]
"""By algorithm: sums replayed, elements one step off, and what differed by more."""


def compare(where: Path, size: Size) -> Found:
    """Replay everything recorded, in this process."""
    found: Found = {}
    for name, program in programs(size).items():
        theirs = list(recorded(where, name, program))
        for (before, own), sent in zip(replayed(where, name, program), theirs[1:], strict=True):
            sums, off, problems = found.get(before.algorithm.NAME, (0, 0, []))
            try:
                off += deviations(own, sent)
            except StateDiffers as error:
                problems = [*problems, f"{name}: {error}"]
            found[before.algorithm.NAME] = sums + 1, off, problems
    return found


def run(where: Path, size: Size, settings: Mapping[str, str], action: str = "--replay") -> Found:
    """Record programs, or replay everything recorded, in a process with these settings."""
    chosen = "small" if size is SMALL else "large"
    ran = subprocess.run(
        [sys.executable, "-m", "tests.conformance.shadow", action, str(where), chosen],
        env={**os.environ, **REFERENCE, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    found: Found = {}
    for line in ran.stdout.splitlines():
        algorithm, sums, off, *problems = line.split("\t")
        found[algorithm] = int(sums), int(off), [each for each in problems if each]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or replay for another process that prints it."""
    reader = argparse.ArgumentParser(prog="python -m tests.conformance.shadow")
    reader.add_argument("--small", action="store_true", help="the programs of `make test`")
    for action in ("--record", "--replay"):
        reader.add_argument(action, nargs=2, metavar=("FOLDER", "SIZE"), help=argparse.SUPPRESS)
    asked = reader.parse_args(arguments)
    if asked.record:
        where, chosen = asked.record
        for name, program in programs(_SIZES[chosen]).items():
            record(Path(where), name, program, _SIZES[chosen])
        return 0
    if asked.replay:
        where, chosen = asked.replay
        for name, (sums, off, problems) in compare(Path(where), _SIZES[chosen]).items():
            print(name, sums, off, *problems, sep="\t")
        return 0
    size, failed = SMALL if asked.small else LARGE, 0
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), size, {}, "--record")
        print(f"{'setting':24}{'algorithm':18}{'sums':>6}{'one step off':>14}{'more':>6}")
        for setting, variables in {**SETTINGS, "all of them": ALL_AT_ONCE}.items():
            for algorithm, (sums, off, problems) in run(Path(folder), size, variables).items():
                print(f"{setting:24}{algorithm:18}{sums:6}{off:14}{len(problems):6}", flush=True)
                failed += len(problems)
                for problem in problems:
                    print("   ", problem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
