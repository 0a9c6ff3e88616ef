from pathlib import Path

import pytest

from tupper.images.debian import mmdebstrap_command
from tupper.images.recipe import read_recipe

TEMPLATES = Path(__file__).parents[3] / "templates"


@pytest.mark.parametrize("name", ["base", "minimal"])
@pytest.mark.parametrize("as_root", [True, False])
def test_mmdebstrap_leaves_the_hosts_package_lists_alone(name, as_root):
    """Our last hook empties the new root's /tmp, and with it the apt.conf that mmdebstrap's own
    cleaning needs: without it that would clean the apt of the host."""
    recipe = read_recipe(TEMPLATES / name)
    command = mmdebstrap_command(recipe, as_root=as_root, apt_options=[])
    skipped = [part.removeprefix("--skip=").split(",") for part in command if "--skip=" in part]
    assert any("cleanup/apt" in words for words in skipped)
    assert ("--mode=root" if as_root else "--mode=unshare") in command
