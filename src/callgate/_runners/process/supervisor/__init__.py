"""The supervisor: a small process between the engine and one worker, which sees to it that nothing outlives a call.

It adopts every process that the worker's tool leaves orphaned (child subreaper), so that the whole tree can be found and ended: at the
engine's word, when the worker dies, after each call for what the tool left behind, and when the engine itself is gone. It passes frames
on without reading them and drains what the tool writes to its standard output and error, so that the worker is never held up.

Runs as a program of its own, single-threaded. Standard library only, relative imports only, and nothing of callgate, not even its
`__init__`: a start costs little more than a bare interpreter.
"""
