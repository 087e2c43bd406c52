"""Language models: providers, HTTP transport, and one codec per provider API.

In reading order: `model_protocol` (the `Model` protocol and the context of one pass), `model_events` (what a model yields), `providers`
(makes a model from a name), `http_model` (one request and its answer), `http_transport` (the transport: deadlines, retries, connections),
`wire` (decoders and encoders of the provider APIs, without I/O) and `dialects` (tool calls that a model writes as plain text). The modules
with an underscore serve the transport. Knows nothing of engines, tools' code or policies.

A request waits within `_deadlines` and is sent again if `_http_retries` says so, by `_http_clients` whose connections `_connection_reuse`
checks and `_connection_closing` closes. `_response_body` and `_decompression` read the answer, and `_error_messages` says what a refusal
means, after `_credential_redaction`. `_aws` and `_sigv4` sign requests to Bedrock.
"""
