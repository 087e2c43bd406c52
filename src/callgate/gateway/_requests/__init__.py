"""The requests of clients while they are answered, and between their rounds.

`cancellable_requests` has the running requests of one front. `multi_round_requests` has a request of a stateless client from its first
message to its result, and `client_questions` what the client is asked in between. `parked_requests` keeps those that wait for input.
`request_states` seals the states and ids by which clients name what continues, and `replicas` finds the gateway that holds it.
"""
