"""Import a script from tools/, which is not a package."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name):
    if str(ROOT / "tools") not in sys.path:
        sys.path.append(str(ROOT / "tools"))  # tools import one another by their names
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
