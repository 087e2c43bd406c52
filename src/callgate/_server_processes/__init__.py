"""The common parts of tool servers that are child processes of the engine: MCP servers and plugins. In reading order:

- `server_lifecycle` is the state machine that keeps a server running.
- `child_process` starts and ends a process with everything that it has started; `line_process` exchanges lines with it, and `json_lines`
  reads and writes the JSON in a line. `shown_command` shows a command without its secrets.
- `server_errors` has the errors of a request to a server; `server_executions` and `content_items` turn errors and content into the
  execution of a call.
- `unknown_tool_names` finds names of tools in a server's configuration that no tool has.
- `protocol_streams` is for the other side: a process whose standard input and output carry a protocol.

Knows no protocol of messages.
"""
