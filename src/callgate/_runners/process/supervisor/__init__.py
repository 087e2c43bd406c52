"""The supervisor: a small process between the engine and one worker, which ensures that no process outlives its call.

It becomes the parent of every process that the worker's tool orphans (child subreaper), so that the whole tree can be found and ended: on
the engine's command, when the worker dies, after each call for processes that the tool left behind, and when the engine itself ends. It
forwards frames without decoding them and reads what the tool writes to standard output and error, so that the worker never blocks on it.

Runs as a separate, single-threaded program. Imports only the standard library and its own modules, not even callgate's `__init__`: starting
it costs little more than a bare interpreter.
"""
