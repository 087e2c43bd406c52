"""The common parts of tool servers that are child processes of the engine: MCP servers and plugins.

`child_process.py` starts and ends a process with everything that it has started. `line_process.py` exchanges lines with it.
`server_life.py` is the state machine that keeps a server running. `server_errors.py` has the errors of a request to a server, and
`server_executions.py` and `content_items.py` turn errors and content into the execution of a call. Knows no protocol of messages.
"""
