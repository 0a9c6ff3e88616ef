"""From an OCI reference to one immutable root filesystem in the store."""
