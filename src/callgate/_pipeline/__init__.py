"""The route of a tool call: its stages, and the modules that they use. In reading order:

The route
    `call_route` calls the stages in order. `admission` admits runs and calls before that. `tool_plan` computes once per tool how the stages
    handle its calls. `call_state` is the state of one call on the route.

The stages
    `parse` makes one JSON object from the arguments. `resolve` finds the tool. `validate` checks the arguments against its schema. `gate`
    decides whether the call may run; it asks policies, `ask_judges` and `approvals`. `result_cache` answers from a stored result that is
    still valid. `execute` runs the tool, with its attempts and timeouts. `result_check` checks the result. `run_hooks` runs the host's code
    before and after. `normalise` gives every result the same format. `outcomes` turns errors and results into outcomes, and records them.

The state of calls
    `idempotency` recognises a call that was handed in before. `unknown_outcomes` settles whether a call took effect. `run_recovery`
    restores the state of both from a run's record. `effect_claims` lets one call at a time have the key of an effect, in all runs;
    `earlier_effect` reads what became of the call that had it. `run_leases` holds leases, the state of each run, and messages of other
    processes for it.

The record
    `event_bodies` defines the contents of events. `recorder` writes them to the journal.

Concurrency and undo
    `concurrency` controls how many calls run at the same time, in which order, and in which tasks. `call_locks` lets a call wait for
    running ones that conflict with it, however they arrived. `wait_graph` finds calls that would wait for themselves. `undo_capture` stores
    the file contents that a call changes.

The engine
    `engine_options` checks the host's options. `engine_assembly` makes the parts of an engine from them. `engine_lifecycle` binds them to
    an event loop and closes them.
"""
