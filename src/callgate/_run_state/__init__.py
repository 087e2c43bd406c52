"""The state of a run: what is known about its calls, questions and unknown outcomes, and the events that record it. In reading order:

`event_bodies` defines the contents of a call's events, and `recorder` writes them to the journal. `late_answers` describes what a tool
answered after its call had ended. `run_state` is the state of one run: its calls with a key, by which `idempotency` recognises a call that
was handed in before, and its `calls_in_doubt`, whose outcome is unknown.
`approvals` are the questions to a human and their answers. `settlements` are an operator's statements about calls with an unknown outcome.
`earlier_effect` reads what became of an earlier call with the same effect key. `run_recovery` restores the state of a run from its events.
Knows no stage of the route.
"""
