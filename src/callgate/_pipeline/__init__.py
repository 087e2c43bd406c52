"""The route of a tool call: its stages, and the modules that they use. In reading order:

The route
    `call_route` calls the stages in order. `call_preparation` is its first half, which has no effect, and `call_approval`
        decides which calls run. `scope_checks` and `admission` admit runs and calls before that. `tool_plan` computes
        once per tool how the stages handle its calls. `call_state` is the state of one call on the route, and
        `call_events` writes its events.

The stages
    `parse` makes one JSON object from the arguments. `resolve` finds the tool. `validate` checks the arguments
        against its schema, and `redacted_quotes` removes secrets from what it quotes of them. `gate` decides whether
        the call may run by the `combined_verdict` of the policies, the tool (`tool_question`) and `ask_judges`;
        `policy_recheck` asks the policies again while the call runs. `engine_policies` has the policies.
        `approval_answers` applies a human's answer, and `recorded_questions` reads questions and answers from the
        record. `result_cache` answers from one of the `cached_results` that is still valid, and `other_engines_writes`
        finds what other engines may have changed since. `execute` runs the tool, and `attempts` its code once or more.
        `result_check` checks the result. `call_hooks` runs the host's hooks before and after, by `host_code`, which
        runs all of its code. `normalise` gives every result the same format, with `result_parts` and `result_notes`.
        `outcomes` turns errors and results into outcomes, and records them, and `unrecorded_outcomes` says of some that
        they are not on record; `unstarted_calls` ends the calls that never started. `remembered_results` answers a call
        that was handed in again and cannot be recorded.

The state of runs
    `open_runs` acquires the leases of runs, and offers those of idle runs to other engines. `run_states` has the state
        of each run (`callgate._run_state`), and `running_calls` the calls that are under way. `run_leases` ends runs
        whose lease was lost, and `inbox_delivery` carries out messages of other processes. `repeated_calls` answers a
        call that was handed in before. `unknown_outcomes` settles whether a call took effect. `effect_claims` lets only
        one call at a time hold the key of an effect, in all runs. `recorded_effects` finds the earlier call with a key,
        and its result.

Concurrency and undo
    `call_order` decides which calls may run at the same time, `concurrency_limit` how many, and `task_queue` runs them
        in few tasks. `emission_execution` runs the calls of one message on the route.
        `emission_calls` is the state of each, `emission_order` orders them, and `duplicate_calls` finds repeated ones;
        `held_calls` are not taken yet. `call_locks` makes a call wait for running calls that conflict with it, in
        whatever message they arrived. `wait_graph` finds calls that would wait for themselves. `undo_capture` stores
        the file contents that a call changes.

Tools of servers
    `server_catalogue` registers what the engine's servers offer. `tool_servers` starts and closes them, and `server_changes`
        adds and removes some while the engine runs.

The engine
    `engine_options` checks the host's options, `journal_checks` its journal, and `host_fields` each scope's `extra`.
        `engine_context` has the parts that all stages share, and `engine_assembly` makes the other parts from them.
        `engine_lifecycle` binds them to an event loop and closes them. `sync_runner` runs coroutines for synchronous code,
        `engine_runs` is the interface for the agent loop, `engine_questions` that for the host's answers, and `activity`
        counts successful calls.
"""
