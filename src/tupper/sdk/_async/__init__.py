"""The async half of the SDK: the source that the sync half is generated from."""
