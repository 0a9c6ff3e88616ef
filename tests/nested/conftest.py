"""Tests in an outer machine; ``inside`` holds what runs there, and is no part of this run."""

collect_ignore = ["inside"]


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="all that can run with KVM, for long")
