"""Pure parsing and rendering of everything that travels; no I/O."""
