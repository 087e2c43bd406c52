"""The tasks extension of MCP: calls of stateless clients that take long go on as tasks.

`tasks` has the tasks of one gateway, and `task_requests` answers what a client asks about its own.

Source: MCP extension io.modelcontextprotocol/tasks, 2026-07-28.
"""
