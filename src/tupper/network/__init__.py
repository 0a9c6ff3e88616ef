"""Namespaces, packet filters, name service and ports of sandboxes."""
