"""What every other part builds on: errors, types, paths, processes. Imports nothing of ours."""
