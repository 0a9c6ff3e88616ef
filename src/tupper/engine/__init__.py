"""The only layer that knows all the ones below: it composes sandboxes."""
