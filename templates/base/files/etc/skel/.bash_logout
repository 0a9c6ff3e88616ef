# Nothing to do when a login shell ends.
