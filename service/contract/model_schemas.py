"""A model's card and the steps of a run in the contract, from the dataclasses that are written."""

from typing import Any, get_args, get_type_hints

from kernels.features.spec import KernelSpec
from kernels.model.card import Card
from kernels.model.card_sections import Evaluation, Privacy, Quality
from kernels.outcomes.scored import binary, classes, count, time_to_event
from kernels.outcomes.scored.reliability import Curve as CalibrationCurve
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.registry import ALGORITHMS
from kernels.tables.curves import Curve
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Standardiser
from service.contract.dataclass_schemas import Components, Json, reference
from service.contract.program_schemas import camel_case

_NAMES = {
    Evaluation: "ModelEvaluation",
    Privacy: "ModelPrivacy",
    Quality: "RealScores",
    binary.Quality: "BinaryScores",
    classes.Quality: "ClassesScores",
    count.Quality: "CountScores",
    time_to_event.Quality: "TimeToEventScores",
    CalibrationCurve: "CalibrationCurve",
    Curve: "ColumnCurve",
}


def model_schemas() -> dict[str, Json]:
    """Return the schemas of a card, its sections and a run's steps, by name."""
    documents = {
        Schema: reference("TableSchema"),
        KernelSpec: reference("Kernel"),
        Standardiser: reference("Standardiser"),
    }
    components = Components(names=_NAMES, written=documents, whole=True)
    constants = {"format": Card.FORMAT, "version": Card.VERSION}
    card = components.object(Card, constants=constants)
    standardiser = components.object(Standardiser, constants={"version": Standardiser.VERSION})
    return {
        "ModelCard": {"title": "ModelCard", **card},
        "Standardiser": {"title": "Standardiser", **standardiser},
        **_steps(components),
        **components.found,
    }


def _steps(components: Components) -> dict[str, Json]:
    """Return what a run says of each sum, for every algorithm that says anything."""
    found = {}
    for name, algorithm in ALGORITHMS.items():
        kind = _kind_of_step(algorithm)
        if kind is None:
            continue
        title = f"{camel_case(name)}Step"
        own = components.object(kind)
        place = {
            "stage": {"type": "integer", "description": "The index of the stage, from 0."},
            "algorithm": {"const": name},
            "sum": {"type": "integer", "description": "How many sums of the run there were then."},
        }
        own["properties"] = place | own["properties"]
        own["required"] = [*place, *own["required"]]
        found[title] = {"title": title, **own}
    mapping = {
        own["properties"]["algorithm"]["const"]: reference(name)["$ref"]
        for name, own in found.items()
    }
    union = {
        "title": "RunStep",
        "description": "Metrics of one step, over all sites together.",
        "oneOf": [reference(name) for name in found],
        "discriminator": {"propertyName": "algorithm", "mapping": mapping},
    }
    return {**found, "RunStep": union}


def _kind_of_step(algorithm: Algorithm) -> type | None:
    """Return the dataclass of an algorithm's history, if its state has one."""
    kind: Any = get_type_hints(algorithm.State).get("history")
    lists = [each for each in get_args(kind) if get_args(each)]
    found: type | None = get_args(lists[0])[0] if lists else None
    return found
