"""This host: its backends and what ``setup`` does to it.

The only place of the command line that talks to the layers below the server: ``setup`` and
``doctor`` must work when the background process cannot start.
"""

from __future__ import annotations
