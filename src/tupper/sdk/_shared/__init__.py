"""What both halves of the SDK share: types, errors, rendering and parsing. No I/O but untar."""
