"""What the gateway offers as a server of MCP: tools, resources and prompts, and notifications of their changes.

`tool_list` makes the definitions of the engine's tools, and `operator_tools` has the gateway's own. `content` has the resources, prompts
and completions of the upstream servers as one server's, and `offered_content` those of the servers that a principal may use. `changes`
tells clients what has changed, and `watched_resources` has the subscriptions of one client. `startup` waits until the servers have started,
and replaces them.
"""
