"""Language models: what they send, read event by event, and what they are sent.

`wire` holds one decoder and encoder per provider API, without I/O; `dialects` reads calls that a model writes as text; `http` is the one
transport. All of it speaks the values of `events` and of `callgate.messages`. Knows nothing of engines, tools' code or policies.
"""
