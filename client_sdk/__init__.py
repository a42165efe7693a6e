"""The hospital's software: its local table, its own policy, and the one exit for its numbers.

Names are imported on first use: `veilgp --version` must not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client_sdk.estimator import FederatedClassifier, FederatedRegressor
    from client_sdk.gate.policy import Policy
    from client_sdk.joining import join, join_async
    from client_sdk.model.gain import Gain, gain
    from client_sdk.model.model import GlobalModel
    from client_sdk.model.personal.model import PersonalModel
    from client_sdk.model.predictions import Intervals, Predictions
    from client_sdk.simulation import Simulated, simulate, site_of_home
    from client_sdk.tables.checking.check import check_table
    from client_sdk.tables.checking.report import TableReport
    from client_sdk.withdrawal import withdraw
    from kernels.rounds.site.dealing import Dealing

__all__ = [
    "Dealing",
    "FederatedClassifier",
    "FederatedRegressor",
    "Gain",
    "GlobalModel",
    "Intervals",
    "PersonalModel",
    "Policy",
    "Predictions",
    "Simulated",
    "TableReport",
    "check_table",
    "gain",
    "join",
    "join_async",
    "simulate",
    "site_of_home",
    "withdraw",
]

_HOMES = {
    "Dealing": "simulation",
    "FederatedClassifier": "estimator",
    "FederatedRegressor": "estimator",
    "Gain": "model.gain",
    "GlobalModel": "model.model",
    "Intervals": "model.predictions",
    "PersonalModel": "model.personal.model",
    "Policy": "gate.policy",
    "Predictions": "model.predictions",
    "Simulated": "simulation",
    "TableReport": "tables.checking.report",
    "check_table": "tables.checking.check",
    "gain": "model.gain",
    "join": "joining",
    "join_async": "joining",
    "simulate": "simulation",
    "site_of_home": "simulation",
    "withdraw": "withdrawal",
}


if not TYPE_CHECKING:  # to a type checker, a name that is not there is an error

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
