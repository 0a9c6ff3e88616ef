"""Networks of sandboxes: what they may reach, how they reach it, their ports on the host."""

from tupper.network.find import find_network
from tupper.network.policy import Network, Policy
from tupper.network.ports import PortForward

__all__ = ["Network", "Policy", "PortForward", "find_network"]
