"""Commit of the working directory, read without running what a stranger's repository asks for.

`git status` runs programs that `.git/config` names: filters, a file-system monitor, hooks, helpers that fetch
missing objects. So it is asked only of repositories whose own settings are all known to name no program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

# `-c` overrides what a repository sets; the rest of what can run a program is refused by name below
_SAFE = ("--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")  # fmt: skip
_HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks"
    r"|autocrlf|eol|safecrlf|longpaths)"
    r"|remote\..*\.(url|fetch)|branch\..*\.(remote|merge|rebase)|user\.(name|email)"
    r"|submodule\.(.*\.)?(url|active)|init\.defaultbranch|pull\.(rebase|ff)",
    re.IGNORECASE | re.DOTALL,
)
_USERS_OWN = ("system", "global", "command")  # scopes of settings that no repository can make


def git_state() -> dict[str, Any] | None:
    """Commit, and `dirty` if there are uncommitted changes; None if that cannot be asked safely."""
    if shutil.which("git") is None:
        return None
    try:
        commit = _git("rev-parse", "HEAD").strip()
        return {"commit": commit, "dirty": _is_dirty() if _names_no_program() else None}
    except (subprocess.SubprocessError, OSError, ValueError):
        return None


def _names_no_program() -> bool:
    words = _git("config", "--list", "--name-only", "--show-scope", "-z").split("\0")
    return all(
        scope in _USERS_OWN or _HARMLESS.fullmatch(key)
        for scope, key in zip(words[::2], words[1::2], strict=False)
    )


def _is_dirty() -> bool:
    return bool(_git("status", "--porcelain", "--ignore-submodules=all").strip())


def _git(*words: str) -> str:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
    done = subprocess.run(
        ["git", *_SAFE, *words],
        capture_output=True, text=True, timeout=10, check=True, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout
