"""Contract suites and fakes for backends, ours and third parties'."""
