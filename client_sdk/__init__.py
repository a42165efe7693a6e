"""What a hospital installs: its local table, its own policy, and the one door out."""

from client_sdk.simulation import Simulated, simulate
from client_sdk.site_gain import Gain, gain

__all__ = ["Gain", "Simulated", "gain", "simulate"]
