"""The fronts of a gateway: each answers the messages of one client, in one era of the protocol.

Read `handshake` first, the front for revisions up to 2025-11-25, then `stateless`, the front since 2026-07-28. `front_parts` has what they
share: `methods` answers the requests that both eras have, and `client_runs` names the runs that have the calls. `subscriptions` answers
`subscriptions/listen` of the stateless era. `handshake_results` turns results into those of the handshake era, and `url_elicitations` knows
the elicitations in URL mode of one of its sessions.
"""
