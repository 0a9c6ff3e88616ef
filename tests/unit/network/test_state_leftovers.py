"""What a write that was cut off leaves is found, so that a sweep removes it."""

from tupper.network.state import State


def test_half_written_entries_are_found_and_removed(tmp_path):
    state = State(tmp_path)
    name = "i" + "0" * 20
    (tmp_path / f"{name}.new").write_text('{"sandbox_id"')
    assert state.ids() == {name}
    assert state.entries() == []
    state.remove(name)
    assert list(tmp_path.iterdir()) == []
