"""What calls changed in a workspace, kept so that it can be put back exactly.

A call's old content is stored before it may write, what it left right after, as one commit in a repository of callgate's own: outside the
workspace, never the user's repository, its hooks or its index. Stands beside runners and journals, and meets the engine through
`protocols.WriteLog`. Knows nothing of engines, models or policies.
"""
