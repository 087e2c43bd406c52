"""`python -m callgate`: the same as `callgate`."""

from __future__ import annotations

import sys

from callgate.cli import main

sys.exit(main())
