"""One file a backend; none knows another."""
