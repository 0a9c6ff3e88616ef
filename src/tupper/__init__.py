"""tupper: sandboxes for AI agents on your own machine, each under its own kernel."""
