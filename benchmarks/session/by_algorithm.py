"""What replay and the answer time cost a hospital, algorithm by algorithm.

For every sum of a stage, in CPU seconds of one thread, which other processes hardly change:

    contribute   check the state, try it on made-up rows, compute the numbers of one hospital's rows
                 and encode them
    replay       the tags of the total, its decoding, the update, and the new state's digest
    answer       the stage's answer time: no answer leaves before it (`gate.answer_times`)

Each is the mean over the sums of a stage, in the faster of two passes over the program. Replay does
not depend on the number of hospitals; three take part here. Parameters are the defaults, except
that there are few steps and rounds, which does not change what one of them costs, and that private
programs have the kernels of `benchmarks.dp`.
"""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks import hospitals
from benchmarks.dp.routes import TARGET_CLIP, exact_steps, stochastic
from benchmarks.session.ours import DEALING, ROW_BAND, dealt_here, draw_tables, program_of
from client_sdk.gate.answer_times import answer_times
from client_sdk.gate.policy import Policy
from client_sdk.home.home import Home
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.noise_plan import NoisePlan
from kernels.rounds import position as positions
from kernels.rounds.algorithm import rehearsed
from kernels.rounds.broadcast import checked
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import distillation, elbo, exact, fedavg, private_exact, search
from kernels.rounds.layer import completion, linear, linear_two_sums, outcomes, refinement, update
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS, algorithm_of
from kernels.rounds.shared.public_set import columns_of
from kernels.rounds.site.site import Part, Site
from kernels.rounds.task import noise_multiplier
from kernels.tables.targets import Binary
from privacy import noise
from privacy.encoding import Encoding
from privacy.tags import data_tags

SITES, ROWS, PUBLIC_ROWS = 3, 2000, 200
PASSES = 2
MULTIPLIER = 1.0
_KEY = bytes(32)


@dataclass
class Spent:
    """CPU seconds of the sums of one stage, in order, in one pass over its program."""

    contribute_s: list[float] = field(default_factory=list)
    replay_s: list[float] = field(default_factory=list)
    elements: int = 0


@dataclass(frozen=True)
class StageCost:
    """What one sum of an algorithm costs a hospital, in seconds. elements: of the longest sum."""

    elements: int
    contribute_s: float
    replay_s: float
    answer_s: float


def programs(*, quick: bool) -> list[Program]:
    """Return programs that contain every algorithm; those with noise are the last."""
    few = 1 if quick else 3
    table = hospitals.patients(hospitals.MIXES[-1], PUBLIC_ROWS, seed=1000)
    labelled = columns_of(table)
    public = columns_of({name: column for name, column in table.items() if name != "stay"})
    judged = recalibration.Spec(), evaluation.Spec()
    distilled = distillation.Spec(public=labelled, rounds=few, alphas=(10.0,))
    exact_sums: list[tuple[Any, ...]] = [
        (exact.Spec(steps=1 + few, penalties=(3.0,)), linear.Spec(), *judged),
        (linear.Spec(), completion.Spec()),
        (fedavg.Spec(rounds=few), linear.Spec()),
        (distilled, linear_two_sums.Spec(), update.Spec()),
        (linear.Spec(), predictive.Spec(public=public), beta.Spec()),
        (fedpa.Spec(rounds=few),),
        (fedyogi.Spec(rounds=few),),
        (ep_mcmc.Spec(),),
        (fedbe.Spec(public=public),),
        (one_shot.Spec(public=public),),
    ]
    inputs = program_of(moments.Spec()).kernel.inputs
    # After `elbo`, `refinement` also sums S, so it costs more than after `linear`.
    noisy: list[tuple[KernelSpec, tuple[Any, ...]]] = [
        (stochastic(inputs)[0], (elbo.Spec(steps=2 * few), refinement.Spec())),
        (exact_steps(inputs)[0], (private_exact.Spec(steps=few), linear.Spec(), *judged)),
    ]
    return [
        *(program_of(moments.Spec(), *stages) for stages in exact_sums),
        _with_outcome(),
        _with_choice(few),
        *(_noisy(kernel, (moments.Spec(), *stages)) for kernel, stages in noisy),
    ]


def _with_choice(few: int) -> Program:
    """Return a program that chooses between a line and the kernel of the others."""
    program = program_of(moments.Spec(), linear.Spec())
    line = KernelSpec(architecture=Architecture.LINEAR, inputs=program.kernel.inputs)
    recipes = (
        search.Recipe(name="linear", kernel=0, steps=1),
        search.Recipe(name="deep", kernel=1, steps=few, penalty=3.0),
    )
    stages = (moments.Spec(), search.Spec(recipes=recipes), linear.Spec())
    return replace(program, kernel=line, choices=(line, program.kernel), stages=stages)


_RISK = 0.25
"""Whoever has a higher risk is readmitted: a cost does not depend on chance."""


def _with_outcome() -> Program:
    """Return a program of the layers of a number and of a yes/no outcome."""
    program = program_of(moments.Spec(), linear.Spec())
    readmitted = Binary("readmitted", ("no", "yes"), event="yes")
    schema = replace(program.schema, targets=(*program.schema.targets, readmitted))
    return replace(program, schema=schema, stages=(*program.stages, outcomes.Spec()))


def _noisy(kernel: KernelSpec, stages: tuple[Any, ...]) -> Program:
    plan = NoisePlan(multipliers=(MULTIPLIER,) * len(stages), target_clip=TARGET_CLIP)
    return replace(program_of(moments.Spec()), kernel=kernel, stages=stages, privacy=plan)


def measure(*, quick: bool = False) -> dict[str, StageCost]:
    """Return the cost by algorithm, and "…_with_noise" for those that also have exact sums."""
    costs: dict[str, StageCost] = {}
    with_exact_sums: set[str] = set()
    for program in programs(quick=quick):
        sites = _sites(program)
        passes = [_spent(program, sites) for _ in range(1 if quick else PASSES)]
        for stage, answer_s in enumerate(_answers(program)):
            if stage not in passes[0]:
                continue
            name = algorithm_of(program.stages[stage]).NAME
            if program.privacy is not None and name in with_exact_sums:
                name += "_with_noise"
            if program.privacy is None:
                with_exact_sums.add(name)
            own = [each[stage] for each in passes]
            costs.setdefault(
                name,
                StageCost(
                    own[0].elements,
                    min(float(np.mean(each.contribute_s)) for each in own),
                    min(float(np.mean(each.replay_s)) for each in own),
                    answer_s,
                ),
            )
    if missing := ALGORITHMS.keys() - costs.keys():
        raise RuntimeError(f"no program contains {', '.join(sorted(missing))}")
    return costs


def figures(costs: Mapping[str, StageCost]) -> dict[str, float]:
    """Return the milliseconds by algorithm, and replay over contribute."""
    found: dict[str, float] = {}
    for name, cost in costs.items():
        found[f"contribute_ms_{name}"] = 1e3 * cost.contribute_s
        found[f"replay_ms_{name}"] = 1e3 * cost.replay_s
        found[f"answer_ms_{name}"] = 1e3 * cost.answer_s
        found[f"replay_over_contribute_{name}"] = cost.replay_s / cost.contribute_s
    return found


def table(costs: Mapping[str, StageCost]) -> str:
    """Return the costs as a table in Markdown."""
    lines = [
        "| algorithm | elements | contribute | replay | replay / contribute | answer time |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, cost in costs.items():
        times = (cost.contribute_s, cost.replay_s, cost.answer_s)
        contribute, replay, answer = (f"{1e3 * seconds:.3g} ms" for seconds in times)
        ratio = f"{cost.replay_s / cost.contribute_s:.2g}"
        shown = name.replace("_with_noise", ", with noise")
        cells = (shown, f"{cost.elements:,}", contribute, replay, ratio, answer)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _sites(program: Program) -> list[Site]:
    """Return the hospitals, with rows to add if the program updates a layer."""
    tables = draw_tables(ROWS)[:SITES]
    if program.schema.outcomes:
        risks = [hospitals.readmission_risk(table) for table in tables]
        tables = [
            {**table, "readmitted": np.where(risk > _RISK, "yes", "no")}
            for table, risk in zip(tables, risks, strict=True)
        ]
    sites = dealt_here(program, tables)
    if not any(type(spec) is update.Spec for spec in program.stages):
        return sites
    return [
        Site(
            {**site.parts, Part.ADDED: site.records[Part.CALIBRATION]},
            digest=site.digest,
            dealing=DEALING,
        )
        for site in sites
    ]


def _spent(program: Program, sites: list[Site]) -> dict[int, Spent]:
    """Run a program once, and time what the first of its hospitals does, by stage."""
    spent: dict[int, Spent] = {}
    position = positions.start(program, None)
    while not position.finished:
        own = spent.setdefault(position.stage, Spent())
        began = time.process_time()
        total = _vector(position, sites[0])
        own.contribute_s.append(time.process_time() - began)
        own.elements = max(own.elements, total.size)
        for site in sites[1:]:
            total = total + _vector(position, site)
        encoding = _encoding(position)
        began = time.process_time()
        data_tags(_KEY, total.view("<i8"), SITES)
        decoded = encoding.decode(total, contributors=SITES)
        position, _ = positions.after(position, decoded)
        position.digest  # noqa: B018 - it is computed on first use
        own.replay_s.append(time.process_time() - began)
    return spent


def _vector(position: Position, site: Site) -> Any:
    """Return what a hospital would mask for a position's sum, with its share of the noise."""
    state = checked(position.state, position.program, position.stage)
    ready, encoding = rehearsed(position.algorithm, state), _encoding(position)
    drawn = noise.draw(encoding).once() if encoding.share_deviations else None
    return encoding.encode(ready.contributed(site), noise=drawn)


def _encoding(position: Position) -> Encoding:
    return Encoding.of_sum(
        position.algorithm.layout(position.state),
        multiplier=noise_multiplier(position.program, position.stage),
        honest=SITES,
        members=SITES,
    )


def _answers(program: Program) -> tuple[float, ...]:
    """Return the answer time of each stage, as a hospital measures it in a new home.

    Measured in CPU seconds: a hospital takes wall-clock seconds, on a machine of its own.
    """
    with tempfile.TemporaryDirectory() as folder, Home(folder).open() as home:
        least_s, clock = Policy().least_answer_s, time.process_time
        return answer_times(home.store, program, ROW_BAND, least_s=least_s, clock=clock)[:-1]
