"""There is one door: no other module of the hospital's side can send a vector."""

import ast
from pathlib import Path

import client_sdk

ROOM = Path(next(iter(client_sdk.__path__)))
ALONE = {"gate/door.py"}
UNMASKED = {"gate/unmasked_samples.py"}
TRIAL = "gate/trial.py"
PERSONAL = "model/personal/calibration.py"  # counts a hospital's rows for its own model, at home
SIMULATION = "simulation.py"  # has no network access: import-linter checks this


def modules() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOM)): ast.parse(path.read_text()) for path in ROOM.rglob("*.py")}


def calls(tree: ast.AST) -> list[str]:
    """Return the names of the functions called, in line order."""
    found = [
        (node.lineno, node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    ]
    return [name for _, name in sorted(found)]


def imports(tree: ast.Module) -> set[str]:
    named = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    return named | {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}


def texts(tree: ast.Module) -> str:
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return " ".join(value for value in strings if isinstance(value, str))


def test_only_the_door_computes_encodes_and_masks_what_leaves() -> None:
    trees = modules()
    for verb in ("contributed", "upload"):
        found = {name for name, tree in trees.items() if verb in calls(tree)}
        assert found - {SIMULATION, TRIAL} == ALONE, verb
    drawing = {name for name, tree in trees.items() if "privacy.noise" in imports(tree)}
    assert drawing - {SIMULATION} == ALONE
    assert {name for name, tree in trees.items() if "contribute" in calls(tree)} == {PERSONAL}
    encoding = {name for name, tree in trees.items() if "privacy.encoding" in imports(tree)}
    assert encoding - {SIMULATION, TRIAL} == ALONE | {"conversation/replay.py"}


def test_a_trial_has_no_way_out() -> None:
    tree = modules()[TRIAL]
    assert "upload" not in calls(tree)
    assert not [name for name in imports(tree) if name.startswith("client_sdk")]


def test_a_personal_model_has_no_way_out() -> None:
    """No module of its folder imports what encodes, sends or takes part."""
    for name, tree in modules().items():
        if name.startswith("model/personal/"):
            assert not {"upload", "put", "post"} & {*calls(tree)}, name
            for room in ("privacy", "client_sdk.gate", "client_sdk.network", "httpx"):
                assert not [own for own in imports(tree) if own.startswith(room)], name
            assert not [own for own in imports(tree) if own.startswith("client_sdk.conversation")]


def test_only_the_door_knows_where_vectors_go() -> None:
    assert {name for name, tree in modules().items() if "/vectors" in texts(tree)} == ALONE


def test_one_module_samples_this_hospitals_own_model_and_sends_that_unmasked() -> None:
    trees = modules()
    for verb in ("samples_of", "put"):
        assert {name for name, tree in trees.items() if verb in calls(tree)} == UNMASKED, verb
    drawing = {name for name, tree in trees.items() if "drawn_samples" in calls(tree)}
    assert drawing == ALONE
    sending = {name for name, tree in trees.items() if "send_unmasked_samples" in calls(tree)}
    assert sending == {"conversation/participation.py", "conversation/session.py"}


def test_only_the_transport_opens_a_connection() -> None:
    network = {"httpx", "socket", "urllib.request", "http.client", "requests"}
    found = {name for name, tree in modules().items() if network & imports(tree)}
    assert found == {"network/transport.py"}


def test_the_journal_is_written_before_the_transport_is_asked() -> None:
    trees = modules()
    vector, samples = (
        next(
            node
            for node in ast.walk(trees[file])
            if isinstance(node, ast.FunctionDef) and node.name == name
        )
        for file, name in (
            ("gate/door.py", "send_masked_vector"),
            ("gate/unmasked_samples.py", "send_unmasked_samples"),
        )
    )
    names = calls(samples)
    assert (
        names.index("allows_unmasked_samples") < names.index("samples_leave") < names.index("put")
    )
    names = calls(vector)
    assert names.index("check_task") < names.index("_computed") < names.index("_wait")
    assert names.index("_wait") < names.index("upload") < names.index("commit")
    assert names.index("commit") < names.index("send")


def test_the_charge_is_written_and_the_state_tried_before_a_row_is_read() -> None:
    tree = modules()["gate/door.py"]
    (computed,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "_computed"
    ]
    names = calls(computed)
    order = ["rehearsed", "_encoding", "check_upload", "draw", "_charge", "contributed"]
    assert [name for name in names if name in order] == order
    assert not [name for name in names[names.index("contributed") :] if name.startswith("check")]
