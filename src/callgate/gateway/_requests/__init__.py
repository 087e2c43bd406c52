"""The requests of clients while they are answered, and between their rounds.

`cancellable_requests` has the running requests of one front. `parked_requests` keeps requests of stateless clients that wait for input of
the client. `request_states` seals the states and ids by which clients name what continues. `replicas` finds the gateway that holds it.
"""
