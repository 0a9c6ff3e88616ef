"""The host's side of the agent: its client and which binary to run."""
