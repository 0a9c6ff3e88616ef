"""Networks of sandboxes: what they may reach, how they reach it, their ports on the host."""

from tupper.network.policy import Network, Policy

__all__ = ["Network", "Policy"]
