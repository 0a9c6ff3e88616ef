"""The HTTP server: control plane, data plane proxy, background process."""
