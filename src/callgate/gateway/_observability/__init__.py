"""How an operator observes a gateway.

`metrics` counts in the format of Prometheus, `tracing` makes a span of OpenTelemetry for each call, and `health` tells load balancers
whether the gateway and its servers work.
"""
