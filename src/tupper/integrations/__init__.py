"""Agent frameworks that can use a sandbox: one module each, over the public SDK.

A module imports its framework, so it is imported only by who has that installed. Each has an extra
of the same name: ``pip install 'tupper[deepagents]'``.
"""
