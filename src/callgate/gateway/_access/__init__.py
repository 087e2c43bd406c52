"""What clients may use while their tokens, the configuration and the rules change.

`issuer_keys` gets the public keys with which `jwt_tokens` checks tokens. `token_expiry` ends what outlives a request's token, and
`tool_scopes` decides which scopes a token needs to call a tool. While a configuration is reloaded, `narrowed_access` accepts only what the
old and the new one accept, and `current_rules` judges by the rules of both. `configuration_files` makes a rule that keeps file tools from
writing the configuration. `current_principals` has what the principals of calls that have waited may do now.
"""
