"""The route of a tool call, and what belongs to it. In reading order:

The route
    `call_route` names the stages in their order. `admission` lets runs and calls in before it. `tool_plan` works out once for each tool
    what the stages do with its calls. `call_state` is one call on the route.

The stages
    `parse` makes one JSON object of the arguments. `resolve` finds the tool. `validate` checks the arguments against it. `gate` decides
    whether the call may run, and asks policies, `judges` and `approvals`. `cache` answers from a result that is still good. `execute` runs
    the tool, with its attempts and timeouts. `result_check` judges what it gave. `hooks` runs the host's code before and after. `normalise`
    gives
    every result one shape. `outcomes` turns errors and results into the outcome, and records it.

What is known of calls
    `idempotency` recognises a call that was handed in before. `unknown_outcomes` settles whether a call took effect. `recovery` reads both
    from a run's record. `run_leases` holds leases, the state of each run, and what other processes want of it.

The record
    `event_bodies` is what events say. `recorder` writes them to the journal.

Around the calls
    `concurrency` says how many calls run at once, in which order, and in which tasks. `undo_capture` keeps what a call changes in files.

The engine
    `options` checks what the host gives. `engine_parts` makes the parts of an engine of it. `lifecycle` binds them to an event loop and
    closes them.
"""
