"""Say clearly when the Python that runs this is too old."""

import sys

OLDEST = (3, 11)

if tuple(sys.version_info) < OLDEST:
    sys.exit(f"callgate needs Python 3.11 or newer; this is {sys.version.split()[0]}. Say which to use: make PYTHON=python3.12 ...")
