from typing import ClassVar

import pytest

from qemu_contract import QemuContract


class TestQemu(QemuContract):
    pytestmark: ClassVar = [*QemuContract.pytestmark, pytest.mark.root]
