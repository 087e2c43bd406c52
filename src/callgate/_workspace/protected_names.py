"""Names of files that make other programs run code, or that contain secrets. Pure.

Policies use this as a fact. A workspace does not refuse these files, because reading `.git/config` is ordinary work;
policy rules decide about writing them. Names are compared as a lenient file system compares them: case-folded, and
without invisible characters, trailing dots, spaces and stream names.
"""

from __future__ import annotations

import unicodedata
from fnmatch import fnmatchcase

__all__ = ["OWN_FOLDER", "PROTECTED", "is_own", "is_protected"]

OWN_FOLDER = ".callgate"
"""The folder of callgate's own files."""

PROTECTED: frozenset[str] = frozenset(
    {
        *(".git", "git~1", ".gitmodules", ".gitattributes", ".gitconfig", ".hg", ".hgrc", ".svn", ".bzr", ".husky", "lefthook.y*ml"),
        *(".pre-commit-config.y*ml", ".github", ".gitlab", ".gitlab-ci.y*ml", ".gitea", ".forgejo", ".circleci", ".travis.yml"),
        *(".buildkite", ".drone.yml", "jenkinsfile", "azure-pipelines.y*ml", "bitbucket-pipelines.y*ml"),
        *(".env", ".env.*", ".envrc", ".direnv", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc"),
        *(
            ".vscode",
            ".idea",
            ".zed",
            ".fleet",
            ".cursor",
            ".claude",
            ".mcp.json",
            ".devcontainer",
            ".devcontainer.json",
            "*.code-workspace",
        ),
        *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".cargo", ".m2", ".gem", ".terraform.d", ".password-store"),
        *("authorized_keys", "known_hosts", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx"),
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".login", ".cshrc", ".tcshrc", ".kshrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".xinitrc", ".xsession", ".xprofile", ".pam_environment"),
        *(".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".vim", ".nvim.lua", ".emacs", ".emacs.d", ".dir-locals.el", ".gdbinit", ".lldbinit"),
        *(".pythonrc", "sitecustomize.py", "usercustomize.py", "*.pth", ".pythonstartup", ".ipython", ".jupyter", ".irbrc", ".rprofile"),
        *(
            ".callgate",
            "callgate.toml",
            ".autorun",
            "autorun.inf",
            "crontab",
            ".crontab",
            ".forward",
            ".rhosts",
            ".shosts",
            ".git-credentials",
        ),
    }
)
"""Patterns for one case-folded name of a path."""

_IGNORABLE = frozenset({"Cf", "Cc", "Mn", "Cn"})


def is_protected(path: str) -> bool:
    """Return whether any name in `path` is of a file that makes other programs run code or contains secrets."""
    return any(_matches(_fold(name)) for name in path.replace("\\", "/").split("/"))


def is_own(path: str) -> bool:
    """Return whether any name in `path` is that of callgate's own folder, which no tool may use."""
    return "callgate" in path.casefold() and any(_fold(name) == OWN_FOLDER for name in path.replace("\\", "/").split("/"))


def _matches(name: str) -> bool:
    return name in PROTECTED or any(fnmatchcase(name, pattern) for pattern in PROTECTED if "*" in pattern)


def _fold(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name)
    visible = "".join(char for char in plain if unicodedata.category(char) not in _IGNORABLE)
    return visible.casefold().split(":")[0].strip().rstrip(". ")
