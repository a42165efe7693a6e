"""The parts of a program as an admin states them, read strictly: schema, kernels and stages.

Their JSON is that of `kernels`, with less to write: versions are those installed here, a kernel's
`inputs` are the schema's, and public rows may be the name of a public set. The contract describes
each part in full (`service.contract.program_schemas`), from the dataclasses that are built here.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection

from kernels.errors import ProgramError, SpecError
from kernels.features.spec import VERSION as KERNEL_VERSION
from kernels.features.spec import KernelSpec
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.registry import ALGORITHMS, installed
from kernels.rounds.shared.public_set import columns_of
from kernels.strict_json import decode_object
from kernels.tables.schema import Schema
from service.http.declarations import described_as
from service.http.request_models import RequestModel
from service.sessions import public_sets

StatedSchema = Annotated[dict[str, Any], described_as("TableSchema")]
StatedKernel = Annotated[dict[str, Any], described_as("Kernel")]


class Stage(RequestModel):
    """One algorithm by name, with the parameters that differ from its defaults."""

    algorithm: str
    version: int | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


def schema_of(stated: Mapping[str, Any]) -> Schema:
    """Return the schema, or refuse it with all its problems."""
    return Schema.from_json(_text({"version": Schema.VERSION, **stated}))


def kernel_of(stated: Mapping[str, Any], *, inputs: int) -> KernelSpec:
    """Return the kernel, of so many inputs if it states none."""
    spec = KernelSpec.from_json(_text({"version": KERNEL_VERSION, "inputs": inputs, **stated}))
    used = {*json.loads(spec.to_json()), "radius"}  # the radius is of the linear part's, if any
    if unused := sorted(stated.keys() - used):
        raise SpecError(
            f"a {spec.architecture} kernel does not use {', '.join(unused)}: leave it out"
        )
    return spec


def stage_of(connection: Connection, stated: Stage, where: str) -> object:
    """Return the parameters of a stage; `where` locates errors."""
    algorithm = ALGORITHMS.get(stated.algorithm)
    version = algorithm.VERSION if algorithm and stated.version is None else stated.version
    algorithm = installed(stated.algorithm, 0 if version is None else version)
    parameters = dict(stated.parameters)
    if has_public_rows(algorithm) and isinstance(parameters.get("public"), str):
        table = public_sets.find(connection, parameters["public"])
        parameters["public"] = columns_of(table)
    elif has_public_rows(algorithm) and "public" not in parameters:
        raise ProgramError(
            f"{where}, {algorithm.NAME}, needs public rows: upload them with PUT "
            "/public-sets/{name} and set parameters.public to that name"
        )
    wrong: list[str] = []
    spec: object = decode_object(algorithm.Spec, parameters, f"{where}.parameters", wrong)
    if spec is None:
        raise ProgramError("; ".join(wrong))
    return spec


def has_public_rows(algorithm: Algorithm) -> bool:
    """Return whether a stage of this algorithm has public rows among its parameters."""
    return any(field.name == "public" for field in fields(algorithm.Spec))


def _text(plain: dict[str, Any]) -> str:
    # NaN passes here, and is refused with its field's name where the numbers are read.
    return json.dumps(plain)
