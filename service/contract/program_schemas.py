"""Tables, kernels, stages and programs in the contract, from the dataclasses that the parser reads.

Each union is told apart by one field: a column by its `kind`, a kernel by its `architecture`, a
stage by its `algorithm`. A discriminator is stated where that field must be present.
"""

import json
from collections.abc import Iterable
from dataclasses import fields, replace
from inspect import getdoc

from kernels.features.spec import VERSION as KERNEL_VERSION
from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.tables.schema import FEATURE_KINDS, Schema
from kernels.tables.targets import TARGET_KINDS
from service.contract.dataclass_schemas import Components, Json, reference
from service.contract.docstrings import described
from service.contract.program_examples import (
    FEATURES,
    SCHEMA,
    TARGETS,
    kernel_example,
    stage_example,
)

_PUBLIC: Json = {
    "anyOf": [
        {"type": "string", "description": "The name of a public set of this coordinator."},
        {
            "type": "array",
            "description": "The columns of a table: pairs of a name and its cells.",
            "items": {
                "type": "array",
                "prefixItems": [
                    {"type": "string"},
                    {
                        "type": "array",
                        "items": {"type": ["number", "string", "boolean", "null"]},
                    },
                ],
                "minItems": 2,
                "maxItems": 2,
            },
        },
    ]
}


def program_schemas() -> dict[str, Json]:
    """Return the schemas of everything that a program consists of, by name."""
    components = Components()
    found = {
        **_columns(components),
        **_kernels(components),
        **_stages(components),
        "Program": _program(components),
    }
    return found | components.found


def camel_case(name: str) -> str:
    """Return the name of a schema.

    >>> camel_case("private-exact"), camel_case("time_to_event")
    ('PrivateExact', 'TimeToEvent')
    """
    return "".join(word[:1].upper() + word[1:] for word in name.replace("-", "_").split("_"))


def _columns(components: Components) -> dict[str, Json]:
    found, names = {}, dict[str, str]()
    for word, kinds, examples in (
        ("Column", FEATURE_KINDS, FEATURES),
        ("Target", TARGET_KINDS, TARGETS),
    ):
        for kind, own in kinds.items():
            # A target that names no kind is a real number.
            optional = frozenset({"kind"} if kind == "real" else ())
            names[kind] = camel_case(kind) + word
            found[names[kind]] = {
                "title": names[kind],
                **components.object(own, constants={"kind": kind}, optional=optional),
                "examples": [examples[kind]],
            }
    features = _union((names[kind] for kind in FEATURE_KINDS), by="kind", keys=FEATURE_KINDS)
    targets = _union(names[kind] for kind in TARGET_KINDS)
    found["TableSchema"] = {
        "title": "TableSchema",
        **components.object(
            Schema,
            constants={"version": Schema.VERSION},
            optional=frozenset({"version"}),
            changed={
                "features": {"type": "array", "minItems": 1, "items": features},
                "targets": {"type": "array", "minItems": 1, "items": targets},
            },
        ),
        "examples": [SCHEMA],
    }
    return found


def _kernels(components: Components) -> dict[str, Json]:
    found = {}
    meanings = described(Architecture).parts
    for architecture in Architecture:
        own = components.object(
            KernelSpec,
            constants={"architecture": architecture.value, "version": KERNEL_VERSION},
            optional=frozenset({"version", "architecture"}),
            without=frozenset({field.name for field in fields(KernelSpec)} - _used(architecture)),
        )
        own["properties"]["inputs"]["description"] += " By default those of the session's schema."
        del own["required"]
        if architecture is not KernelSpec.architecture:
            own["required"] = ["architecture"]
        name = f"{camel_case(architecture)}Kernel"
        about = {"description": meanings[architecture], "examples": [kernel_example(architecture)]}
        found[name] = {"title": name, **own, **about}
    whole = "x → φ(x). A kernel that names no architecture is `shifted`."
    return found | {"Kernel": {"title": "Kernel", "description": whole, **_union(found)}}


def _used(architecture: Architecture) -> set[str]:
    """Return the fields that kernels of an architecture have, with and without a linear part."""
    specs = [KernelSpec(architecture=architecture, inputs=1)]
    if architecture is not Architecture.LINEAR:
        specs.append(replace(specs[0], linear_part=True))
    return {name for spec in specs for name in json.loads(spec.to_json())}


def _stages(components: Components) -> dict[str, Json]:
    found = {}
    for name, algorithm in ALGORITHMS.items():
        public = any(field.name == "public" for field in fields(algorithm.Spec))
        parameters = components.object(
            algorithm.Spec, changed={"public": _PUBLIC} if public else None
        )
        title = f"{camel_case(name)}Stage"
        found[title] = {
            "title": title,
            "description": _first_paragraph(algorithm),
            "type": "object",
            "properties": {
                "algorithm": {"const": name},
                "version": {
                    "description": "The version that is installed here.",
                    "enum": [algorithm.VERSION, None],
                },
                "parameters": parameters,
            },
            "required": ["algorithm", *(["parameters"] if "required" in parameters else [])],
            "additionalProperties": False,
            "examples": [stage_example(algorithm)],
        }
    about = "One algorithm by name, with the parameters that differ from its defaults."
    union = _union(found, by="algorithm", keys=ALGORITHMS)
    return found | {"Stage": {"title": "Stage", "description": about, **union}}


def _program(components: Components) -> Json:
    """Return the schema of a program's JSON, in which schema and kernels are texts."""
    changed = {
        "schema": _text_of("TableSchema"),
        "kernel": _text_of("Kernel"),
        "choices": {"type": "array", "items": _text_of("Kernel")},
        "stages": {"type": "array", "items": reference("Stage")},
    }
    own = components.object(Program, constants={"version": Program.VERSION}, changed=changed)
    return {"title": "Program", **own}


def _text_of(name: str) -> Json:
    about = {"contentMediaType": "application/json", "contentSchema": reference(name)}
    return {"type": "string", **about}


def _union(
    names: Iterable[str], *, by: str | None = None, keys: Iterable[str] | None = None
) -> Json:
    """Return one of several schemas; `by`: the field that is present in each and tells which."""
    listed = [*names]
    union: Json = {"oneOf": [reference(name) for name in listed]}
    if by is not None and keys is not None:
        mapping = {key: reference(name)["$ref"] for key, name in zip(keys, listed, strict=True)}
        union["discriminator"] = {"propertyName": by, "mapping": mapping}
    return union


def _first_paragraph(algorithm: Algorithm) -> str:
    return " ".join((getdoc(algorithm) or "").partition("\n\n")[0].split())
