"""Store what calls change in a workspace, so that the changes can be undone exactly.

The old content is stored before a call may write. Right after the call, the old and the new content are committed to
callgate's own git repository. This repository is outside of the workspace; the user's repository, its hooks and its
index are never touched. The engine uses this package through `protocols.WriteLog`. Knows nothing of engines, models or
policies.

In reading order:

- `undo_store` is given to an engine. `undo_history` lists, undoes, redoes and prunes the changes of one workspace.
- `change_capture` stores the content before and after a call. `snapshot` observes a file tree, `snapshot_cache` saves
  the last snapshot, `workspace_comparison` compares two observations, and `change_attribution` decides which call made
  a change. `pending_changes` stores the calls that have not ended, and `interrupted_undo` finds the paths that a killed
  undo left unfinished.
- `stored_change` writes and reads one change as a commit, `path_state` observes the state of one path, and
  `checkpoints` stores names for moments in the history.
- `undo_plan` decides what to write where, and `apply_undo` writes it, all or nothing. `patch_text` shows a change as a
  patch. `undo_errors` defines the errors.
- `git_objects` is a git repository on disk, in the folder that `repository_path` returns. `pack_writer`, `pack_reader`
  and `git_refs` read and write its files, and `pruning` deletes objects that are no longer needed.
"""
