"""The host's side of the agent: which binary, where it listens, what the engine asks of it."""

from tupper.guest.agent import Agent, carry_on, dial
from tupper.guest.binary import agent_digest, find_agent_binary
from tupper.guest.claim import claim_socket

__all__ = ["Agent", "agent_digest", "carry_on", "claim_socket", "dial", "find_agent_binary"]
