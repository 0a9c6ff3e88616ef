# Made by tools/make_sync.py from _async/__init__.py. Do not edit.
"""The async half of the SDK: the source that the sync half is generated from."""
