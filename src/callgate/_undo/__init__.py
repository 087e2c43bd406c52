"""What calls changed in a workspace, kept so that it can be put back exactly.

A call's old content is stored before it may write, what it left right after, as one commit in a repository of callgate's own: outside the
workspace, never the user's repository, its hooks or its index. Stands beside runners and journals, and meets the engine through
`protocols.WriteLog`. Knows nothing of engines, models or policies.

In reading order:

- `undo_store` is what an engine is given; `undo_history` what a user asks to undo, redo, list and prune.
- `change_capture` keeps what a call may change: `snapshot` looks at a tree, `snapshot_cache` remembers it, `workspace_comparison` compares
two
  looks, `attribution` says whose work a change is, `pending_changes` are calls that have not ended, `interrupted_undo` what a kill leaves.
- `changes` are commits of what was found and left, in terms of `path_state`; `checkpoints` are names for places between them.
- `undo_plan` decides what to put where and `apply` does it, all or nothing; `difference` shows it; `refusals` are the errors.
- `objects` is a git repository on disk, at a `repository_path`: `pack_writer`, `pack_reader`, `refs`, and `pruning` of what is not needed.
"""
