"""flwr's SecAgg+, run through its own functions and timed for `benchmarks.secure_sum`.

Runs in .venv-peers:

    .venv-peers/bin/python benchmarks/secure_sum/flwr_peer.py '{"party": "client", ...}'

Prints one JSON line of CPU seconds. The graph is complete (every member is a neighbour of every
other), and the threshold, vector and dropouts are those of our own run.

One client is timed through its four stages; what it needs from the others (public keys, encrypted
shares) is created beforehand and not timed. The server is timed from the arrival of the masked
vectors to the aggregate; everything that clients send it is created beforehand. Its work does not
depend on the values of keys and vectors, so members share one vector and one set of Shamir shares,
which flwr would need minutes to create for each of them. `owners` limits the measurement to some of
the members whose secrets the server recovers; the work is equal for each, and
`benchmarks.secure_sum` scales that time up.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _collect_masked_vectors,
    _setup,
    _share_keys,
    _unmask,
)
from flwr.common import ndarray_to_bytes, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    encrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import (
    SecAggPlusWorkflow,
    WorkflowState,
)
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key
from flwr.supercore.task_identity import TaskIdentity

MAX_WEIGHT = 1000.0


def setup(members: int, threshold: int) -> ConfigRecord:
    workflow = SecAggPlusWorkflow(members, threshold, max_weight=MAX_WEIGHT)
    return ConfigRecord(
        {
            Key.SAMPLE_NUMBER: members,
            Key.SHARE_NUMBER: members,
            Key.THRESHOLD: threshold,
            Key.CLIPPING_RANGE: workflow.clipping_range,
            Key.TARGET_RANGE: workflow.quantization_range,
            Key.MOD_RANGE: workflow.modulus_range,
            Key.MAX_WEIGHT: MAX_WEIGHT,
        }
    )


def advertise(members: int, threshold: int) -> list[SecAggPlusState]:
    states = []
    for node in range(1, members + 1):
        state = SecAggPlusState()
        state.nid = node
        _setup(state, setup(members, threshold))
        states.append(state)
    return states


def public_keys(states: list[SecAggPlusState]) -> ConfigRecord:
    return ConfigRecord({str(state.nid): [state.pk1, state.pk2] for state in states})


def vector(length: int, node: int) -> Any:
    return np.random.default_rng(node).uniform(-1.0, 1.0, length)


def time_client(members: int, threshold: int, length: int) -> dict[str, float]:
    """Time one client: keys, shares, masking (including opening the others' shares), and reveal."""
    others = advertise(members, threshold)[1:]
    state = SecAggPlusState()
    state.nid = 1
    parameters = ndarrays_to_parameters([vector(length, 1)])

    start = time.process_time()
    _setup(state, setup(members, threshold))
    keys = time.process_time() - start

    everyone = public_keys([state, *others])
    start = time.process_time()
    _share_keys(state, everyone)
    shares = time.process_time() - start

    piece = state.rd_seed_share_dict[1], state.sk1_share_dict[1]
    boxes = [
        encrypt(
            generate_shared_key(bytes_to_private_key(other.sk2), bytes_to_public_key(state.pk2)),
            share_keys_plaintext_concat(other.nid, 1, *piece),
        )
        for other in others
    ]
    inbox = ConfigRecord(
        {Key.CIPHERTEXT_LIST: boxes, Key.SOURCE_LIST: [other.nid for other in others]}
    )
    start = time.process_time()
    sent = _collect_masked_vectors(state, inbox, int(MAX_WEIGHT), parameters)
    masking = time.process_time() - start

    survivors = ConfigRecord(
        {Key.ACTIVE_NODE_ID_LIST: list(range(1, members + 1)), Key.DEAD_NODE_ID_LIST: []}
    )
    start = time.process_time()
    _unmask(state, survivors)
    reveal = time.process_time() - start
    uploaded = sum(map(len, sent[Key.MASKED_PARAMETERS]))
    return {
        "keys": keys,
        "shares": shares,
        "masking": masking,
        "reveal": reveal,
        "upload_bytes": uploaded,
    }


class Canned:
    """A grid whose members reply at once with messages created beforehand."""

    def __init__(self, replies: list[list[Any]]) -> None:
        self._replies = replies

    def send_and_receive(self, _: Any, *, timeout: float | None) -> list[Any]:
        """Return the prepared replies in place of flwr's `Grid`, without waiting."""
        del timeout
        return self._replies.pop(0)


def reply(node: int, content: dict[str, Any]) -> Any:
    record = RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(content, keep_input=True)})
    return SimpleNamespace(
        has_error=lambda: False, metadata=SimpleNamespace(src_node_id=node), content=record
    )


def serve(
    states: list[SecAggPlusState],
    threshold: int,
    owners: set[int],
    vectors: list[Any],
    reveals: list[Any],
) -> tuple[dict[str, float], Any]:
    """Time the server's two stages, from the masked vectors to the aggregate.

    Returns the times and the aggregate.
    """
    workflow = SecAggPlusWorkflow(len(states), threshold, max_weight=MAX_WEIGHT)
    everyone = {state.nid for state in states}
    state = WorkflowState(
        nid_to_proxies=dict.fromkeys(everyone),
        nid_to_fitins={node: RecordDict() for node in everyone},
        sampled_node_ids=owners,
        active_node_ids=everyone,
        num_shares=len(states),
        threshold=threshold,
        clipping_range=workflow.clipping_range,
        quantization_range=workflow.quantization_range,
        mod_range=workflow.modulus_range,
        max_weight=MAX_WEIGHT,
        nid_to_neighbours={node: set(everyone) for node in everyone},
        nid_to_publickeys={member.nid: [member.pk1, member.pk2] for member in states},
        forward_srcs={node: [] for node in everyone},
        forward_ciphertexts={node: [] for node in everyone},
    )
    aggregates: list[Any] = []

    def aggregate_fit(_: int, results: list[Any], __: list[Any]) -> tuple[None, dict[str, Any]]:
        aggregates.extend(result.parameters for _, result in results[:1])
        return None, {}

    context: Any = SimpleNamespace(
        state=SimpleNamespace(config_records={MAIN_CONFIGS_RECORD: {WorkflowKey.CURRENT_ROUND: 1}}),
        strategy=SimpleNamespace(aggregate_fit=aggregate_fit),
    )
    grid: Any = Canned([vectors, reveals])
    # The server's handling of each reply for old strategies is left out: it is not SecAgg+.
    compat = sys.modules[SecAggPlusWorkflow.__module__].compat
    compat.recorddict_to_fitres = lambda *_: SimpleNamespace(parameters=None)
    start = time.process_time()
    if not workflow.collect_masked_vectors_stage(grid, context, state):
        raise RuntimeError("flwr's server gave up while collecting")
    collected = time.process_time()
    if not workflow.unmask_stage(grid, context, state):
        raise RuntimeError("flwr's server gave up while unmasking")
    seconds = {"collect": collected - start, "unmask": time.process_time() - collected}
    return seconds, parameters_to_ndarrays(aggregates[0])[0]


def time_server(
    members: int, threshold: int, length: int, dropped: int, silent: int, owners: int
) -> dict[str, float]:
    """Time the server.

    The last `dropped` members send no vector, and the `silent` members before them no shares.
    """
    states = advertise(members, threshold)
    seed_shares = create_shares(bytes(range(32)), threshold, members)
    key_shares = create_shares(states[0].sk1, threshold, members)
    active = [state.nid for state in states[: members - dropped]]
    dead = [state.nid for state in states[members - dropped :]]
    # The same share of both kinds, so that the whole is a multiple of the measured part.
    part = owners / members
    measured = set(active[: round(part * len(active))] + dead[: round(part * len(dead))])
    masked = np.random.default_rng(0).integers(0, 2**32, length)
    upload = [ndarray_to_bytes(np.array([2**22])), ndarray_to_bytes(masked)]
    vectors = [reply(node, {Key.MASKED_PARAMETERS: upload}) for node in active]
    reveals = []
    for index, node in enumerate(active[: len(active) - silent]):
        kept = [nid for nid in active if nid in measured]
        lost = [nid for nid in dead if nid in measured]
        shares = [seed_shares[index]] * len(kept) + [key_shares[index]] * len(lost)
        reveals.append(reply(node, {Key.NODE_ID_LIST: kept + lost, Key.SHARE_LIST: shares}))
    seconds, _ = serve(states, threshold, measured, vectors, reveals)
    return seconds | {"owners": len(measured)}


def measure_error(members: int, threshold: int, length: int) -> dict[str, float]:
    """Run all members without shortcuts and compare the mean with the exact one."""
    states = advertise(members, threshold)
    everyone = public_keys(states)
    sent = [_share_keys(state, everyone) for state in states]
    vectors, nodes = [], [state.nid for state in states]
    for state in states:
        inbox = ConfigRecord(
            {
                Key.CIPHERTEXT_LIST: [
                    box
                    for message in sent
                    for to, box in zip(
                        message[Key.DESTINATION_LIST], message[Key.CIPHERTEXT_LIST], strict=True
                    )
                    if to == state.nid
                ],
                Key.SOURCE_LIST: [node for node in nodes if node != state.nid],
            }
        )
        parameters = ndarrays_to_parameters([vector(length, state.nid)])
        content = _collect_masked_vectors(state, inbox, int(MAX_WEIGHT), parameters)
        vectors.append(reply(state.nid, content))
    survivors = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: nodes, Key.DEAD_NODE_ID_LIST: []})
    reveals = [reply(state.nid, _unmask(state, survivors)) for state in states]
    _, mean = serve(states, threshold, set(nodes), vectors, reveals)
    exact = np.mean([vector(length, node) for node in nodes], axis=0)
    return {"relative_error": float(np.max(np.abs(mean - exact)) / np.max(np.abs(exact)))}


PARTIES: dict[str, Callable[..., dict[str, float]]] = {
    "client": time_client,
    "server": time_server,
    "error": measure_error,
}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    arguments = json.loads(sys.argv[1])
    print(json.dumps(PARTIES[arguments.pop("party")](**arguments)))
