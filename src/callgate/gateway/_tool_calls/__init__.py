"""Make the calls of clients. In reading order:

The call
    `tool_calls` submits calls to the engine, and answers `tools/call`. `principal_limits` bounds how many calls of a principal run and
        wait. `live_output` sends what tools report while they run.

The approval
    `suspended_calls` has the calls that wait for a human's decision, and `submitted_calls` describes one; `suspension_reader` reads those
        of other processes from the journal. `approvals` makes the question for the user of a client and reads the answer; pure.
        `user_approval` asks the user, while others may answer the same question.

The result
    `tool_results` makes the result that the client gets, and `server_results` restores what the upstream server has sent.
        `result_outcomes` reads from a result how the call has ended, for metrics and traces. `call_records` reads calls from the journal,
        and `ended_requests` makes the result of a call whose request the gateway has ended.
"""
