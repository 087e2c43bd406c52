"""The parts of the configuration of a gateway, which `config_file` reads into the values of `config`.

`toml_table` reads the values of a TOML file. `server_tables` reads the tables of MCP servers and plugins, `jwt_table` reads `[jwt]`, and
`listen_address` reads the address to listen on. `secret_values` removes configured secrets from everything that is recorded or sent.
`kept_secret` keeps the secret with which a gateway seals ids. `config_changes` compares two configurations for a reload.
`unmatched_patterns` finds names and patterns that fit no tool or no principal.
"""
