"""flwr's simulation engine with its SecAgg+, timed for `benchmarks.session`; runs in .venv-peers.

    .venv-peers/bin/python benchmarks/session/flwr_peer.py '{"members": 10, "rounds": 20, ...}'

Prints one JSON line of wall-clock seconds. Clients return a vector of the requested length and do
no other work: no data is read and nothing is trained. The graph is complete and the threshold is
that of our own session. The engine (ray, its actors and their imports) starts before timing begins,
and so does a first round, in which every actor imports what it needs.
"""

import json
import logging
import os
import sys
import time
from typing import Any

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.simulation import run_simulation

ROWS = 1
"""The weight of every client in the mean."""


class Idle(NumPyClient):
    """A client that does no training."""

    def fit(
        self, parameters: list[Any], _: dict[str, Any]
    ) -> tuple[list[Any], int, dict[str, Any]]:
        """Return a vector of the same length as the model's."""
        return [parameters[0] + 1e-3], ROWS, {}


class Timed(FedAvg):
    """Federated averaging that records the time after every round."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ends: list[float] = []
        self.contributed: list[int] = []

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Aggregate as FedAvg does."""
        aggregated = super().aggregate_fit(server_round, results, failures)
        self.ends.append(time.perf_counter())
        self.contributed.append(len(results))
        return aggregated


def measure(members: int, rounds: int, length: int, threshold: int) -> dict[str, float]:
    """Run one warm-up round, then run and time `rounds` more."""
    strategy = Timed(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=members,
        min_available_clients=members,
        initial_parameters=ndarrays_to_parameters([np.zeros(length)]),
    )
    server = ServerApp()

    def main(grid: Any, context: Context) -> None:
        legacy = LegacyContext(
            context=context, config=ServerConfig(num_rounds=rounds + 1), strategy=strategy
        )
        secure = SecAggPlusWorkflow(members, threshold, max_weight=float(ROWS))
        DefaultWorkflow(fit_workflow=secure)(grid, legacy)

    server.main()(main)
    client = ClientApp(client_fn=lambda _: Idle().to_client(), mods=[secaggplus_mod])
    began = time.perf_counter()
    run_simulation(server, client, members)
    if strategy.contributed != [members] * (rounds + 1):
        raise RuntimeError(f"not everyone took part in every round: {strategy.contributed}")
    return {
        "start_s": strategy.ends[0] - began,
        "session_s": strategy.ends[-1] - strategy.ends[0],
    }


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
