"""An MCP server: sandboxes as tools for any model, over the public SDK.

Needs the extra ``tupper[mcp]``; nothing is imported before it is used.
"""
