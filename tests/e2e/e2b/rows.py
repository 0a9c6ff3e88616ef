"""What code written for E2B expects, a row each: the behavioural checklist of the wire notes.

A row gets a :class:`driver.World` and knows no SDK by name. It fails by raising.
"""

import rows_code
import rows_commands
import rows_files
import rows_life
import rows_pause
import rows_ports
import rows_secrets
import rows_templates
import rows_volumes
from rows_common import DEAR, ROWS, NotHere

__all__ = [
    "DEAR",
    "ROWS",
    "NotHere",
    "rows_code",
    "rows_commands",
    "rows_files",
    "rows_life",
    "rows_pause",
    "rows_ports",
    "rows_secrets",
    "rows_templates",
    "rows_volumes",
]  # fmt: skip
