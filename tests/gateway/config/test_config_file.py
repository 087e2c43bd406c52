"""`gate.toml`: what is read, and what is said about everything that is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callgate.errors import UsageError
from callgate.gateway.config import GatewayConfig
from callgate.gateway.config_file import principal_header, read_gateway_config, token_digest

DIGEST = "a" * 64
TOKEN = "cg_a-token-that-is-long-enough"
ENVIRONMENT = {"ALICE_TOKEN": TOKEN, "SHORT": "abc", "KEY": "SECRET-KEY-1", "GATE_SECRET": "s" * 32, "PORT": "9000", "EMPTY": ""}
GIT = '[servers.git]\ncommand = "uvx mcp-server-git"\n'


def read(folder: Path, text: str) -> GatewayConfig:
    (folder / "gate.toml").write_text(text, encoding="utf-8")
    return read_gateway_config(folder / "gate.toml", ENVIRONMENT)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    return str(caught.value)


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, "")
    assert config.name == "callgate"
    assert config.journal == str(tmp_path / ".callgate" / "journal.db")
    assert config.workspace == str(tmp_path)
    assert (config.servers, config.tools, config.plugins, config.http, config.principals) == ((), (), (), None, ())


def test_paths_begin_in_the_folder_of_the_file(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        'journal = "gate.db"\nrules = "rules.toml"\ntools = ["mine.py:both", "package.module:TOOLS", "builtin"]\n'
        '[servers.git]\ncommand = ["uvx", "mcp-server-git"]\ncwd = "work"\nroots = ["src", "file:///etc"]\n',
    )
    assert config.journal == str(tmp_path / "gate.db")
    assert config.rules == (str(tmp_path / "rules.toml"),)
    assert config.tools == (f"{tmp_path / 'mine.py'}:both", "package.module:TOOLS", "builtin")
    server = config.servers[0].server
    assert server.cwd == str(tmp_path / "work")
    assert list(map(str, server.roots)) == [str(tmp_path / "src"), "file:///etc"]


@pytest.mark.parametrize("journal", [":memory:", "postgresql://user@db/callgate"])
def test_a_journal_that_is_no_file_stays_as_it_is(tmp_path: Path, journal: str) -> None:
    assert read(tmp_path, f'journal = "{journal}"').journal == journal


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("command = \"uvx mcp-server-git --repository 'my repo'\"", ("uvx", "mcp-server-git", "--repository", "my repo")),
        ('command = ["uvx", "mcp-server-git"]', ("uvx", "mcp-server-git")),
        ('command = "uvx"\nargs = ["mcp-server-git", "${NONE:-a b}"]', ("uvx", "mcp-server-git", "a b")),
        ('command = "${NONE:-uvx} ${KEY}"', ("uvx", "SECRET-KEY-1")),
    ],
)
def test_a_command_is_a_text_or_a_list_of_words(tmp_path: Path, written: str, words: tuple[str, ...]) -> None:
    """A variable is one word, whatever its value; none of its text is taken as a part of the command line."""
    assert read(tmp_path, f"[servers.git]\n{written}").servers[0].server.command == words


def test_a_server_takes_the_options_of_mcp_servers(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        '[servers.crm]\nurl = "https://${NONE:-crm.example}/mcp"\nheaders = { Authorization = "Bearer ${KEY}" }\ntools = ["find"]\n'
        "prefix = true\ntimeout_s = 5\nparallel = 2\nrequired = true\n"
        '[servers.crm.effects]\nfind = "none"\n[servers.crm.options.find]\ncacheable = true\n',
    )
    server = config.servers[0].server
    assert (server.url, dict(server.headers)) == ("https://crm.example/mcp", {"Authorization": "Bearer SECRET-KEY-1"})
    assert (server.tools, server.prefix, server.timeout_s, server.parallel, server.required) == (("find",), True, 5, 2, True)
    assert (dict(server.effects), dict(server.options)) == ({"find": "none"}, {"find": {"cacheable": True}})
    assert "SECRET" not in repr(config)


def test_files_of_other_clients_are_read_as_they_are(tmp_path: Path) -> None:
    servers = {"time": {"command": "uvx", "args": ["mcp-server-time"]}, "off": {"command": "x", "disabled": True}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    found = read(tmp_path, f'mcp_files = "mcp.json"\n{GIT}').servers
    assert [(one.name, one.enabled) for one in found] == [("git", True), ("time", True), ("off", False)]


def test_accepted_tools_are_beside_the_file_or_where_it_says(tmp_path: Path) -> None:
    assert read(tmp_path, GIT).servers[0].server.accepted is None
    assert read(tmp_path, f'accepted = "mine.json"\n{GIT}').servers[0].server.accepted == tmp_path / "mine.json"
    (tmp_path / "gate.accepted.json").write_text('{"version": 1, "servers": {}}', encoding="utf-8")
    assert read(tmp_path, GIT).servers[0].server.accepted == tmp_path / "gate.accepted.json"


def test_tokens_are_known_by_their_digests_only(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        f'[principals.alice]\ntoken_env = "ALICE_TOKEN"\nrole = "operator"\ntools = ["git_*"]\n'
        f"parallel = 2\nqueued = 3\npending = 4\napproves = false\n"
        f'[principals."team two"]\ntoken_sha256 = ["{DIGEST}", "{"B" * 64}"]\n',
    )
    alice, team = config.principals
    assert alice.token_sha256 == (token_digest(TOKEN),)
    assert (alice.principal.role, alice.principal.tools, alice.principal.parallel) == ("operator", ("git_*",), 2)
    assert (alice.principal.queued, alice.principal.pending, alice.principal.approves) == (3, 4, False)
    assert (team.principal.name, team.token_sha256) == ("team two", (DIGEST, "b" * 64))
    assert TOKEN not in repr(config)


def test_the_network_needs_tokens_and_names(tmp_path: Path) -> None:
    text = f'[http]\nlisten = "0.0.0.0:${{PORT}}"\nhosts = ["gate.example.com"]\n[principals.alice]\ntoken_sha256 = "{DIGEST}"\n'
    http = read(tmp_path, text).http
    assert http is not None
    assert (http.host, http.port, http.path, http.hosts) == ("0.0.0.0", 9000, "/mcp", ("gate.example.com",))


@pytest.mark.parametrize(
    ("resource", "audience"),
    [
        ("https://gate.example/mcp", ("https://gate.example/mcp",)),
        ("https://gate.example", ("https://gate.example", "https://gate.example/")),
    ],
)
def test_tokens_are_for_the_resource_unless_the_file_says_otherwise(tmp_path: Path, resource: str, audience: tuple[str, ...]) -> None:
    text = f'[http]\nlisten = "0.0.0.0:1"\n[jwt]\nissuer = "https://id.example"\nresource = "{resource}"\n'
    assert (jwt := read(tmp_path, text).jwt) is not None
    assert (jwt.audience, jwt.jwks_url, jwt.scopes, jwt.tool_scopes) == (audience, "", (), {})
    assert (jwt := read(tmp_path, f'{text}audience = "api://gate"\nscopes = "a"\ntool_scopes = {{ x = ["b"] }}\n').jwt) is not None
    assert (jwt.audience, jwt.scopes, jwt.tool_scopes) == (("api://gate",), ("a",), {"x": ("b",)})


def test_limits_of_http_that_are_not_given_keep_their_defaults(tmp_path: Path) -> None:
    http = read(tmp_path, "[http.limits]\nsessions = 5\nkeep_alive_s = 1\n").http
    assert http is not None
    assert (http.limits.sessions, http.limits.keep_alive_s, http.limits.connections) == (5, 1.0, 2000)


def test_replicas_share_a_journal_on_a_server(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        'journal = "postgresql://db/callgate"\n[replicas]\nname = "a"\nurl = "http://10.0.0.3:8765/"\nsecret_env = "GATE_SECRET"\n',
    )
    assert config.replicas is not None
    assert (config.replicas.name, config.replicas.url) == ("a", "http://10.0.0.3:8765")
    assert "sss" not in repr(config.replicas)


def test_values_to_redact_come_from_the_environment(tmp_path: Path) -> None:
    assert read(tmp_path, 'redact_env = ["KEY"]').secrets == ("SECRET-KEY-1",)


ALICE = f'[principals.alice]\ntoken_sha256 = "{DIGEST}"\n'
RESOURCE = '[jwt]\nissuer = "https://id.example"\nresource = "https://gate.example/mcp"\n'
JWT = '[jwt]\nissuer = "https://id.example"\naudience = "gate"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name =", "gate.toml is not valid TOML: Invalid value"),
        ('nam = "x"', "gate.toml has no option 'nam'; did you mean 'name'?"),
        ("[mcpServers.git]", "gate.toml has no option 'mcpServers'; did you mean 'servers'?"),
        ("name = 5", "gate.toml: name is 5; it must be text. Write it in quotes."),
        ("timeout_s = 0", "timeout_s is 0; it must be a number of seconds above 0"),
        ("timeout_s = inf", "timeout_s is inf; it must be a number of seconds above 0"),
        ('timeout_s = "5"', "timeout_s is '5'; it must be a number of seconds above 0"),
        ("rules = [1]", 'rules is [1]; it must be a text or a list of texts. Write rules = ["...", "..."].'),
        ('journal = ""', "journal is empty. Write a file or a postgresql:// address"),
        (
            'journal = "a\\u0000b.db"',
            r"journal is 'a\x00b.db', which cannot be a file. Write the path of a file without control characters.",
        ),
        ('name = " "', "name is empty. Write the name that clients are told, or leave it out: it is callgate then."),
        ('journal = "${NONE}/x.db"', "gate.toml: journal uses the environment variable NONE, which is not set. Set it before the start."),
        ('workspace = "none"', "which is not a folder. Make it, or name another."),
        ('plugins = ["./none"]', "gate.toml: plugins cannot be used: There is no callgate-plugin.toml"),
        ('[plugins.none]\nefect = "x"', "[plugins.none] has no option 'efect'; did you mean 'effects'?"),
        ('mcp_files = ["none.json"]', "none.json, so it cannot be used as a configuration of MCP servers."),
        ('redact_env = ["NONE"]', "redact_env names the environment variable NONE, which is not set. Set it, or remove it here."),
        ('redact_env = ["SHORT"]', "redact_env names SHORT, whose value has 3 characters; at least 6 are needed."),
        ("servers = 1", "servers is 1; it must be a table. Begin it with a line [servers]."),
        ("[servers]\ngit = 1", "[servers] git is 1; it must be a table. Begin it with a line [servers.git]."),
        ('[servers.git]\ncomand = "x"', "[servers.git] has no option 'comand'; did you mean 'command'?"),
        ("[servers.git]", "[servers.git] command is missing, and so is url."),
        ('[servers.git]\ncommand = "x"\nurl = "http://h/"', "[servers.git] command and url are both given."),
        ('[servers.git]\ncommand = "a \'b"', "[servers.git] command cannot be divided into words (No closing quotation)."),
        ("[servers.git]\ncommand = []", "[servers.git] command is empty. Write the program to start."),
        ('[servers.git]\ncommand = "x ${A:-b c}"', "[servers.git] command has a variable with a blank in its default."),
        ('[servers.git]\ncommand = "x ${NONE}"', "[servers.git] command uses the environment variable NONE, which is not set."),
        ('[servers.git]\ncommand = "x"\nheaders = { A = "b" }', "[servers.git] headers is for a url; a command has none."),
        ('[servers.git]\nurl = "http://h/"\nenv = { A = "b" }', "[servers.git] env is for a command; a server with a url has none."),
        ('[servers.git]\nurl = "h"', "[servers.git] cannot be used: McpServer(url='h') of 'git': it must be an address"),
        (
            f"{GIT}era = 'old'",
            "gate.toml: [servers.git] era is 'old'; it must be 'handshake' or 'stateless'. Leave it out, and",
        ),
        (f"{GIT}isolation = ''", "[servers.git] isolation is ''; it must be 'principal' or 'shared'. Leave it out, and clients share"),
        (f"{GIT}prefix = 'x'", "[servers.git] prefix is 'x'; it must be true or false. Write prefix = true or prefix = false."),
        (f"{GIT}required = 1", "[servers.git] required is 1; it must be true or false. Write required = true or required = false."),
        (f"{GIT}timeout_s = 0", "[servers.git] timeout_s is 0; it must be a number of seconds above 0."),
        (
            f"{GIT}parallel = 'x'",
            "[servers.git] parallel is 'x'; it must be a whole number from 1. Leave it out for no limit of its own.",
        ),
        (
            "[servers.git]\ncommand = 'x'\n[servers.git.effects]\na = 'read'",
            "[servers.git] cannot be used: McpServer(effects={'a': 'read'})",
        ),
        (
            f"{GIT}[servers.git.options.find]\ntimeout_s = 'x'",
            "[servers.git.options.find] timeout_s is 'x'; it must be a number of seconds",
        ),
        (
            f"{GIT}[servers.git.options.find]\nkey = 5",
            "gate.toml: [servers.git.options.find] key is 5; it must be text. Write it in quotes.",
        ),
        (f"{GIT}[servers.git.options.find]\ncategory = 'x'", "[servers.git.options.find] category is 'x'; it must be 'safe_chain' or"),
        (f"{GIT}[servers.git.options.find]\ncache_scope = 'x'", "[servers.git.options.find] cache_scope is 'x'; it must be 'tick' or"),
        (f"{GIT}[servers.git.options.find]\nrequires_approval = 'yes'", "requires_approval is 'yes'; it must be true or false. Write"),
        (f"{GIT}[servers.git.options.find]\nwrites = 5", "[servers.git.options.find] writes is 5; it must be a text or a list of texts"),
        (f"{GIT}[servers.git.options.find]\nparallel = 0", "parallel is 0; it must be a whole number from 1. Leave it out for no limit"),
        (
            f"{GIT}[servers.git.options.find]\nretry = 3",
            "[servers.git.options.find] retry cannot be written in a file. Remove it",
        ),
        (f"{GIT}[servers.git.options]\nfind = 5", "[servers.git.options] find is 5; it must be a table. Begin it with a line"),
        ("[servers.git]\ncommand = 'x'\nenv = { A = 1 }", "[servers.git.env] A is not text. Write it in quotes."),
        ('[servers."a b"]\ncommand = "x"', "McpServer(name='a b') of 'a b': it must be at most 64 letters"),
        ('[http]\nlisten = "nowhere:x"', "[http] listen is 'nowhere:x', which is not an address to listen on. Write HOST:PORT"),
        ('[http]\nlisten = "127.0.0.1:65536"', "the port is from 0 to 65535"),
        ('[http]\npath = "mcp"', "[http] path is 'mcp'; it must begin with '/'"),
        ('[http]\norigins = ["app.example"]', "[http] origins has 'app.example', which is not an origin."),
        ('[http]\nlisten = "0.0.0.0:1"\nhosts = ["h"]', "on 0.0.0.0:1, which other machines can reach, but nobody has a token."),
        (f'[http]\nlisten = "0.0.0.0:1"\n{ALICE}', "which other machines can reach, but `hosts` in [http] is empty."),
        ("[principals.alice]", "[principals.alice] has neither token_env nor token_sha256, so nobody can be this principal."),
        (f'[principals.alice]\ntoken = "{TOKEN}"', "[principals.alice] token would be a secret in this file"),
        ('[principals.alice]\ntoken_env = "NONE"', "[principals.alice] token_env names the environment variable NONE, which is not set."),
        ('[principals.alice]\ntoken_env = "SHORT"', "[principals.alice] token_env names SHORT, whose value is not a token: at least 20"),
        ('[principals.alice]\ntoken_sha256 = "abc"', "token_sha256 has 3 characters, and is not a SHA-256 digest of 64 hexadecimal digits"),
        (f'{ALICE}role = "admin"', "[principals.alice] role is 'admin'; it must be 'client' or 'operator'."),
        (f"{ALICE}parallel = 0", "[principals.alice] parallel is 0; it must be a whole number from 1. The default is 64."),
        (f"{ALICE}approves = 1", "[principals.alice] approves is 1; it must be true or false."),
        (f"{ALICE}approves = 'no'", "it must be true or false. Write approves = true or approves = false."),
        (f'{ALICE}[principals.bob]\ntoken_sha256 = "{DIGEST}"', "[principals.bob] has the token of [principals.alice] too."),
        ('[jwt]\naudience = "gate"', "[jwt] issuer is missing."),
        ('[jwt]\nissuer = "${NOTHING:-}"\naudience = "gate"', "[jwt] issuer is missing."),
        ('[jwt]\nissuer = "https://id.example"', "[jwt] audience is missing."),
        ('[jwt]\nissuer = "https://id.example"\naudience = [""]', "[jwt] audience is missing."),
        (
            '[jwt]\nissuer = "id"\naudience = "gate"',
            "[jwt] issuer is 'id'; it must begin with https://, because its metadata are looked up",
        ),
        (f'{JWT}jwks_url = "https://id.example/keys"\nkey_file = "k"', "[jwt] jwks_url and key_file are both given."),
        (f'{JWT}key_file = "gate.toml"', "which has no line '-----BEGIN PUBLIC KEY-----'. Write the path of the issuer's public key"),
        (f'{JWT}scopes = "a"', "[jwt] scopes is given without resource."),
        (f"{JWT}algorithms = []", "[jwt] algorithms is empty, so that no token could be accepted."),
        (f"{JWT}leeway_s = 4000", "[jwt] leeway_s is 4000; it must be a number of seconds from 0 and at most 3,600."),
        (f'{JWT}resource = "gate.example/mcp"', "[jwt] resource is 'gate.example/mcp'; it must begin with https://"),
        (f'{JWT}resource = "http://gate.example/mcp"', "it must begin with https:// and have neither query nor fragment"),
        (f'{JWT}resource = "https://gate.example/mcp?a=b"', "it must begin with https:// and have neither query nor fragment"),
        (f'{RESOURCE}scopes = ["a b"]', "[jwt] scopes has 'a b', which is not a scope."),
        (f'{RESOURCE}[jwt.tool_scopes]\n"a*" = "offline_access"', '[jwt.tool_scopes] "a*" has offline_access'),
        (f'{RESOURCE}tool_scopes = "a"', "[jwt] tool_scopes is 'a'; it must be a table."),
        (f"[http]\nanonymous = true\n{JWT}", "anonymous = true in [http] lets everybody in, so [jwt] would have no effect."),
        (f"[http]\nanonymous = true\n{ALICE}", "anonymous = true in [http] lets everybody in, so [principals] would have no effect."),
        ('[http]\npath = "/health"', "[http] path is '/health', where the gateway serves something else."),
        ("[http.limits]\nconections = 1", "[http.limits] has no option 'conections'; did you mean 'connections'?"),
        ("[http.limits]\nconnections = 0", "[http.limits] connections is 0; it must be a whole number from 1. The default is 2000."),
        ("[http.limits]\nbody_timeout_s = 0", "[http.limits] body_timeout_s is 0; it must be a number of seconds above 0."),
        ('[http]\nhosts = "*.example.com"', "[http] hosts has '*.example.com'; each name has to be given whole."),
        (f'{JWT}jwks_url = "http://id.example/keys"', "[jwt] jwks_url is 'http://id.example/keys'; it must begin with https://."),
        (
            f'{JWT}jwks_url = "https://id.example/keys"\nalgorithms = ["HS256"]',
            "algorithms has 'HS256', which is not an algorithm with a public",
        ),
        (f'{JWT}key_file = "none.pem"', "which is not a file. Write the path of the public key."),
        ('[replicas]\nname = "a"', "[replicas] url is missing."),
        (
            '[replicas]\nname = "a"\nurl = "http://h"\nsecret_env = "GATE_SECRET"',
            "[replicas] name is given, but journal is not a postgresql:// address.",
        ),
        (
            'journal = "postgresql://h/d"\n[replicas]\nname = "a"\nurl = "http://h"\nsecret_env = "SHORT"',
            "[replicas] secret_env names SHORT, whose value has 3 characters; at least 32 are needed.",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    said = refusal(tmp_path, text)
    assert told in said
    assert "gate.toml" in said or "none.json" in said
    for secret in ("SECRET-KEY-1", TOKEN, "abc'"):
        assert secret not in said


def test_two_servers_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"git": {"command": "x"}}}', encoding="utf-8")
    said = refusal(tmp_path, f'mcp_files = "mcp.json"\n{GIT}')
    assert "Two MCP servers are named 'git'" in said
    assert "[servers.git]" in said
    assert "mcp.json" in said


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"a = 99999-01-01", b"a = " + b"[" * 100_000])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gate.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"gate\.toml"):
        read_gateway_config(tmp_path / "gate.toml", {})


@pytest.mark.parametrize("name", ["", " a", 'a"b', "a\nb", "x" * 129])
def test_a_name_that_nobody_can_have_has_no_header(name: str) -> None:
    with pytest.raises(UsageError, match="A principal cannot be named"):
        principal_header(name)


def test_a_header_can_be_read_again(tmp_path: Path) -> None:
    for name in ("alice", "team two", "ann@example.com"):
        config = read(tmp_path, f'{principal_header(name)}\ntoken_sha256 = "{DIGEST}"')
        assert config.principals[0].principal.name == name
