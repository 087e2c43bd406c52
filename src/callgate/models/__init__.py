"""Language models: providers, HTTP transport, and one codec per provider API.

In reading order: `model_protocol` (the `Model` protocol and the context of one pass), `model_events` (what a model yields), `providers`
(makes a model from a name), `http_model` (one request and its answer), `http_transport` (the transport: deadlines, retries, connections),
`wire` (decoders and encoders of the provider APIs, without I/O) and `dialects` (tool calls that a model writes as plain text). The modules
with an underscore serve the transport. Knows nothing of engines, tools' code or policies.
"""
