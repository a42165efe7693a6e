"""What a hospital installs: its local table, its own policy, and the one door out.

Names are imported when they are used: `veilgp --version` must not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client_sdk.simulation import Simulated, simulate
    from client_sdk.site_gain import Gain, gain

__all__ = ["Gain", "Simulated", "gain", "simulate"]

_HOMES = {
    "Gain": "client_sdk.site_gain",
    "Simulated": "client_sdk.simulation",
    "gain": "client_sdk.site_gain",
    "simulate": "client_sdk.simulation",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
