"""Measurements of callgate, as ratios that hold on any machine: `python -m bench`, or `make bench`.

Every row compares two things inside one process and one interleaved run: what callgate does, and the least that anything doing the job
must do (the floor). CPU time unless a row says wall; medians of rounds with their range. Results are for reading, never for tests.

`measure` runs rounds of benches, each module beside it is one or a few rows of the table, `report` shows and writes them.
"""
