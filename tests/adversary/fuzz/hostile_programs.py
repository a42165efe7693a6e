"""Hostile programs that can be read: every part of an honest one, replaced by an extreme.

Damaged text (`damage.damaged_json`) mostly tests the reader. A coordinator would rather send what
is valid: stages in another order or of another session, steep kernels, narrow or enormous bounds,
one level, hardly any rows allowed, public rows at the ends of what numbers can be, much or hardly
any noise. What does not fit together is refused with a declared error, which counts as well.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from kernels.features.spec import Architecture, Ending, KernelSpec, Normaliser, Replication
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.program import Program
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent

COUNTS = (0, 1, 2, 3, 5, 8)
POSITIVE = (1e-300, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1.0, 3.0, 100.0, 1e6, 1e12, 1e150, 1e300)
CELLS = (0.0, 1.0, -1.0, 119.0, 1e6, -1e6, 1e30, 1e300, -1e300, 5e-324, None)
LARGEST = 64
"""Programs with larger layers or more steps are accepted, and would take too long here."""
FREE = frozenset({"public", "seed", "batch_rows", "min_rows"})
"""Parameters that may be large: they cost nothing, or are bounded by the rows that there are."""
Change = Callable[[Program, Sequence[Program], random.Random], tuple[Program, str]]


def hostile_program(
    session: Program, others: Sequence[Program], chance: random.Random, *, same_model: bool
) -> tuple[Program, str]:
    """Change an honest session's program in one to three ways; return it, and what was done.

    others: programs to take stages from. same_model: leave schema and kernel as they are, so that a
    run can still start from the session's model.
    """
    changes: Sequence[Change] = (_stages, _parameter, _parameter, _parameter, _limits, _noise)
    if not same_model:
        changes = (*changes, _kernel, _kernel, _schema, _schema)
    done = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        session, how = chance.choice(changes)(session, others, chance)
        done.append(how)
    return session, "; ".join(done)


def affordable(program: Program) -> bool:
    """Return whether a program is small enough to be tried here; a site's recipes limit it."""
    kernel = program.kernel
    sizes = [kernel.inputs, kernel.samples, kernel.latent, kernel.shifter_inputs]
    sizes += [kernel.shifter_hidden, *kernel.hidden]
    for spec in program.stages:
        for name, value in vars(spec).items():
            sizes += () if name in FREE else _integers(value)
    return max(sizes) <= LARGEST


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, tuple | list):
        for each in value:
            yield from _integers(each)
    elif type(value) is int:
        yield value


def _stages(program: Program, others: Sequence[Program], chance: random.Random) -> tuple[Any, str]:
    """Leave a stage out, repeat it, move it, or take one of another session."""
    stages = list(program.stages)
    place, other = chance.randrange(len(stages)), chance.randrange(len(stages))
    match chance.randrange(5):
        case 0 if len(stages) > 1:
            del stages[place]
            how = f"without stage {place}"
        case 1:
            stages.insert(other, stages[place])
            how = f"stage {place} again at {other}"
        case 2:
            stages[place], stages[other] = stages[other], stages[place]
            how = f"stages {place} and {other} swapped"
        case _:
            foreign = chance.choice([each for own in others for each in own.stages])
            stages.insert(place + 1, foreign)
            how = f"{type(foreign).STORED_AS} after stage {place}"
    privacy = program.privacy
    if privacy is not None:
        noise = [*privacy.multipliers, *privacy.multipliers][: len(stages)]
        privacy = replace(privacy, multipliers=tuple(noise))
    return replace(program, stages=tuple(stages), privacy=privacy), how


def _parameter(program: Program, _: Sequence[Program], chance: random.Random) -> tuple[Any, str]:
    """Change one parameter of a stage."""
    choices = [
        (stage, each.name)
        for stage, spec in enumerate(program.stages)
        for each in fields(spec)
        if is_dataclass(spec)
    ]
    if not choices:
        return program, "no parameters"
    stage, name = chance.choice(choices)
    spec = program.stages[stage]
    value = _other_value(getattr(spec, name), chance)
    stages = [replace(spec, **{name: value}) if i == stage else s for i, s in _each(program)]
    return replace(program, stages=tuple(stages)), f"{stage}.{name}: {value!r:.60}"


def _each(program: Program) -> Sequence[tuple[int, Any]]:
    return list(enumerate(program.stages))


def _other_value(value: Any, chance: random.Random) -> Any:
    """Return another value of the same kind; for lists of columns, other cells."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        return chance.choice(list(type(value)))
    if isinstance(value, int):
        return chance.choice(COUNTS)
    if isinstance(value, float):
        return chance.choice((0.0, *POSITIVE))
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return _other_columns(value, chance)
    if isinstance(value, tuple) and value:
        one = _other_value(value[0], chance)
        return chance.choice(((), value[:1], (one,), (*value, one), value[::-1]))
    if isinstance(value, tuple):
        return chance.choice(((1,), (2, 3)))
    return value


def _other_columns(columns: Any, chance: random.Random) -> Any:
    """Return a hostile public set: extreme cells, equal rows, one row, many, a column less."""
    match chance.randrange(5):
        case 0:
            return tuple((name, cells[:1]) for name, cells in columns)
        case 1:
            return tuple((name, cells[:1] * len(cells)) for name, cells in columns)
        case 2:
            return tuple((name, cells * 4) for name, cells in columns)
        case 3:
            return columns[: chance.randrange(len(columns))]
    chosen = chance.randrange(len(columns))
    cell = chance.choice(CELLS)
    name, cells = columns[chosen]
    where = chance.randrange(len(cells) + 1)
    cells = [cell if where in (i, len(cells)) else own for i, own in enumerate(cells)]
    return (*columns[:chosen], (name, tuple(cells)), *columns[chosen + 1 :])


def _limits(program: Program, _: Sequence[Program], chance: random.Random) -> tuple[Any, str]:
    """Change the rows allowed or stated, or the share held out."""
    changes: dict[str, Any] = chance.choice(
        (
            {"max_rows": chance.choice((1, 2, 3, 8, 10**6, 10**9, 10**12))},
            {"held_out": chance.choice((0.0, 1e-9, 0.01, 0.5, 0.9, 0.999999))},
            {"least_rows": chance.choice((2, 10, 50, 1000, 10**12))},
        )
    )
    return replace(program, **changes), f"{changes}"


def _noise(program: Program, others: Sequence[Program], chance: random.Random) -> tuple[Any, str]:
    """Change the noise, or let a program have some that has none."""
    if program.privacy is None and chance.random() < 0.8:  # most would have no bounds
        return _limits(program, others, chance)
    count, old = len(program.stages), program.privacy
    noise = NoisePlan(
        multipliers=tuple(chance.choice((0.5, 0.5, 1.0, 8.0, 1e6, 1e-6)) for _ in range(count)),
        max_rows_per_patient=chance.choice((1, 1, 2, 1000)) if program.schema.patient else 1,
        target_clip=chance.choice((1e-6, 0.5, 3.0, 1e6)),
        evaluate=0.5 if old is None else old.evaluate,
        update=0.5 if old is None else old.update,
    )
    return replace(program, privacy=noise), f"{noise}"


def _kernel(program: Program, _: Sequence[Program], chance: random.Random) -> tuple[Any, str]:
    """Take another kernel, with extreme scales."""
    sizes: dict[str, Any] = {
        "inputs": program.kernel.inputs,
        "samples": chance.choice((2, 3, 6)),
        "seed": chance.randrange(5),
        "normaliser": chance.choice(list(Normaliser)),
    }
    scale = chance.choice(POSITIVE)
    architecture = chance.choice(list(Architecture))
    own: dict[str, Any]
    sizes["linear_part"] = chance.choice((False, False, True))
    match architecture:
        case Architecture.LINEAR:
            sizes, own = {"inputs": program.kernel.inputs}, {}
        case Architecture.POLYNOMIAL:
            own = {"degree": chance.choice((1, 2, 100)), "offset": scale}
        case Architecture.DEEP | Architecture.SHIFTED | Architecture.REPLICATED:
            own = {"hidden": chance.choice(((), (1,), (4,), (3, 2))), "latent": 3}
            own["frequency_scale"] = scale
        case Architecture.INDUCING:
            del sizes["normaliser"]
            own = {"lengthscale": scale}
        case _:
            own = {"lengthscale": scale}
    if architecture is Architecture.REPLICATED:
        own["replication"] = chance.choice(list(Replication))
        own["ending"] = chance.choice(list(Ending))
        own["replication_scale"] = chance.choice(POSITIVE)
    if architecture is Architecture.SHIFTED:
        own |= {"shifter_inputs": 3, "shifter_hidden": 4}
    kernel = KernelSpec(architecture=architecture, **sizes, **own)
    return replace(program, kernel=kernel), f"{architecture}, {own}"


def _schema(program: Program, _: Sequence[Program], chance: random.Random) -> tuple[Any, str]:
    """Change a column: its bounds, levels, whether cells may be missing; leave columns out."""
    schema = program.schema
    features, targets = list(schema.features), list(schema.targets)
    place = chance.randrange(len(features))
    column = features[place]
    what = chance.randrange(7)
    if what == 0 and len(features) > 1:
        del features[place]
        how = f"without {column.name}"
    elif what == 1 and len(targets) > 1:
        how = f"without {targets.pop().name}"
    elif what == 2:
        schema = replace(schema, patient=None if schema.patient else "who")
        how = f"patient {schema.patient}"
    elif what == 3:
        target = chance.randrange(len(targets))
        targets[target] = _other_target(targets[target], chance)
        how = f"{targets[target]}"
    elif what == 4:
        targets.insert(chance.randrange(len(targets) + 1), _outcome(chance))
        how = f"{targets}"
    else:
        features[place] = _other_column(column, chance)
        how = f"{features[place]}"
    if not any(isinstance(target, Target) for target in targets):
        # Of outcomes there is only a census so far: the other stages need a number.
        targets = list(schema.targets)
    changed = Schema(tuple(features), tuple(targets), schema.patient)
    kernel = replace(program.kernel, inputs=len(changed.feature_names))
    return replace(program, schema=changed, kernel=kernel), how


def _other_target(target: AnyTarget, chance: random.Random) -> AnyTarget:
    bounded: AnyTarget = _bounded(target, chance) if isinstance(target, Target) else target
    return chance.choice((bounded, bounded, _outcome(chance)))


def _outcome(chance: random.Random) -> AnyTarget:
    """Return an outcome of any kind, some of which no schema may have."""
    levels = chance.choice((("0", "1"), ("1", "0", "2"), ("a", "b", "c", "d"), ("a", "a"), ("a",)))
    exposure = chance.choice((None, None, "exposure"))
    upper = chance.choice((1.0, 1.5, 1000.0, 2.0**24, *POSITIVE))
    edges = chance.choice(((), (1.0, 2.0, 3.0), (1e-9, 1e9), (2.0, 1.0), tuple(range(1, 101))))
    horizon = chance.choice((None, 2.0, 1e9, *POSITIVE))
    return chance.choice(
        (
            Binary("outcome", levels[:2], event=levels[0]),
            Classes("outcome", levels),
            Count("outcome", "1", upper=upper, exposure=exposure),
            TimeToEvent("outcome", "d", event="event", edges=edges, horizon=horizon),
        )
    )


def _other_column(column: Numeric | Categorical, chance: random.Random) -> Numeric | Categorical:
    if chance.random() < 0.3:
        return replace(column, may_be_missing=not column.may_be_missing)
    if isinstance(column, Categorical):
        levels = chance.choice((column.levels[:1], column.levels[::-1], (*column.levels, "rare")))
        return replace(column, levels=levels, other=chance.choice((None, levels[0])))
    return _bounded(column, chance)


def _bounded(column: Any, chance: random.Random) -> Any:
    ends: tuple[float | None, float | None] = chance.choice(
        (
            (None, None),
            (0.0, None),
            (None, 1e300),
            (0.0, 5e-324),
            (98.0, 98.00000001),
            (-1e300, 1e300),
            (-1.7e308, 1.7e308),
            (0.0, 1e12),
            (1e15, 1e15 + 0.25),
        )
    )
    assert isinstance(column, Numeric | Target)
    return replace(column, lower=ends[0], upper=ends[1])
