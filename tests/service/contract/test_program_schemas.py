"""The contract describes schemas, kernels and stages as the parser reads them.

Every example is damaged in every field. Whatever the contract refuses then, the parser refuses.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import jsonschema_rs
import pytest
from pydantic import TypeAdapter, ValidationError

from kernels.errors import KernelsError
from kernels.features.spec import Architecture
from kernels.rounds.registry import ALGORITHMS
from kernels.tables.schema import FEATURE_KINDS
from kernels.tables.targets import TARGET_KINDS
from service import sample
from service.contract.model_schemas import model_schemas
from service.contract.program_examples import FEATURES, TARGETS
from service.contract.program_schemas import program_schemas
from service.database.database import Database
from service.errors import ServiceError
from service.sessions import public_sets
from service.sessions.stated import Stage, kernel_of, schema_of, stage_of
from service.settings import Settings

Json = Mapping[str, Any]
SCHEMAS = {**program_schemas(), **model_schemas()}
EXAMPLES = [
    (name, example) for name, schema in SCHEMAS.items() for example in schema.get("examples", ())
]
OTHERS: list[Any] = [None, True, 1, 1.5, "text", "1", [], {}, [None], ["text"], [[]], {"text": 1}]
DELETED = object()
OBJECT = TypeAdapter(dict[str, Any])


@pytest.fixture(scope="module")
def parse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Any], object]]:
    database = Database(Settings(data_dir=tmp_path_factory.mktemp("parse")).url)
    database.migrate()
    with database.changing() as connection:
        public_sets.put(connection, sample.PUBLIC_SET, sample.PUBLIC_COLUMNS, now=0.0)

    def parse(name: str, plain: Any) -> object:
        """Read JSON of this name as `POST /sessions` does."""
        if name.endswith("Stage"):
            with database.reading() as connection:
                return stage_of(connection, Stage.model_validate(plain), "stages[0]")
        if name.endswith("Kernel"):
            return kernel_of(OBJECT.validate_python(plain, strict=True), inputs=4)
        if name.endswith("Column"):
            return schema_of({"features": [plain], "targets": [TARGETS["real"]]})
        if name.endswith("Target"):
            return schema_of({"features": [FEATURES["numeric"]], "targets": [plain]})
        return schema_of(OBJECT.validate_python(plain, strict=True))

    yield parse
    database.close()


def said(name: str) -> jsonschema_rs.Draft202012Validator:
    """Return what the contract says of this name."""
    components = {"components": {"schemas": SCHEMAS}}
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", **components}
    )


def damaged(plain: Any) -> Iterator[Any]:
    """Yield copies in which one field is gone, new, or of another type, at every depth."""
    for path in paths(plain):
        for other in [*OTHERS, DELETED]:
            if path or other is not DELETED:
                yield with_other(plain, path, other)
        if isinstance(at(plain, path), dict):
            yield with_other(plain, (*path, "unknown"), 1)


def paths(plain: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if here:
        yield here
    within = plain.items() if isinstance(plain, dict) else ()
    within = enumerate(plain) if isinstance(plain, list) else within
    for key, value in within:
        yield from paths(value, (*here, key))
    if not here and isinstance(plain, dict):
        yield here


def at(plain: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        plain = plain[key]
    return plain


def with_other(plain: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return {**plain} if other is DELETED else other
    copy = deepcopy(plain)
    parent = at(copy, path[:-1])
    if other is DELETED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = other
    return copy


def test_every_kind_of_column_kernel_and_stage_has_an_example() -> None:
    described = {name for name, _ in EXAMPLES}
    assert sum(name.endswith("Column") for name in described) == len(FEATURE_KINDS)
    assert sum(name.endswith("Target") for name in described) == len(TARGET_KINDS)
    architectures = {one["architecture"] for name, one in EXAMPLES if name.endswith("Kernel")}
    assert architectures == {*Architecture}
    assert {one["algorithm"] for name, one in EXAMPLES if name.endswith("Stage")} == {*ALGORITHMS}


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_is_what_the_contract_describes_and_what_the_parser_reads(
    name: str, example: Json, parse: Callable[[str, Any], object]
) -> None:
    assert said(name).is_valid(example)
    for union in ("Kernel", "Stage"):
        if name.endswith(union):
            assert said(union).is_valid(example)
    assert parse(name, example)


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_what_the_contract_refuses_the_parser_refuses(
    name: str, example: Json, parse: Callable[[str, Any], object]
) -> None:
    described, refused = said(name), 0
    for other in damaged(example):
        if described.is_valid(other):
            continue
        refused += 1
        try:
            read = parse(name, other)
        except (KernelsError, ServiceError, ValidationError):
            continue
        # A kernel or a target that names none is read as one of another kind.
        union = next((each for each in ("Kernel", "Target") if name.endswith(each)), name)
        targets = SCHEMAS["TableSchema"]["properties"]["targets"]["items"]
        union_schema = targets if union == "Target" else {"$ref": f"#/components/schemas/{union}"}
        others = {**union_schema, "components": {"schemas": SCHEMAS}}
        assert jsonschema_rs.is_valid(others, other), f"the parser read {other} as {read}"
    assert refused > len(example) * 3


def test_a_field_is_described_by_the_docstring_of_its_dataclass() -> None:
    parameters = SCHEMAS["ExactStage"]["properties"]["parameters"]["properties"]
    assert parameters["warm_up"]["description"] == "steps until it is reached."
    assert SCHEMAS["NumericColumn"]["properties"]["unit"]["description"].startswith("For example")


def test_columns_and_kernels_have_no_field_without_a_description() -> None:
    for name, _ in EXAMPLES:
        if name.endswith(("Column", "Target")):
            for field, schema in SCHEMAS[name]["properties"].items():
                assert "const" in schema or schema["description"], (name, field)
