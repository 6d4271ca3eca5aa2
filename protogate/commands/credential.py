"""
C{protogate credential}: lines for the files that say who may come in.

What is made here, a key, is shown on standard error, and stands nowhere else; the line goes to standard output.
"""

from __future__ import annotations

import secrets
import sys
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from getpass import getpass
from typing import TYPE_CHECKING, Final, TextIO

from protogate.commands.registry import add, complain
from protogate.identity import keys, password

if TYPE_CHECKING:
    from protogate.commands.registry import Commands

NAME: Final = "credential"
EXAMPLES: Final = """\
examples:
  protogate credential password alice --groups admin,ops >> users.txt
  protogate credential key billing --days 90 >> keys.txt
  protogate credential secret partner-7 partner >> secrets.txt
"""


def register(commands: Commands) -> None:
    """One command below it for each kind of file."""
    below = add(commands, NAME, "Make a line for a file of users, of keys, or of secrets.", None, EXAMPLES)
    kinds = below.add_subparsers(required=True, metavar="KIND")
    made = add(
        kinds, "password", "Ask for a password, or read it from standard input: a line for basicAuth.", _password
    )
    made.add_argument("name", help="of the user")
    made.add_argument("--groups", default="", metavar="A,B", help="that the user is in")
    made = add(kinds, "key", "Make a key, and show it on standard error: a line for keyAuth.", _key)
    made.add_argument("name", metavar="owner", help="whose key it is")
    made.add_argument("--days", type=int, default=0, metavar="N", help="that it is good for (default: for ever)")
    made = add(kinds, "secret", "Make a secret that both sides share: a line for hmacAuth.", _secret)
    made.add_argument("id", help="by which signatures name it")
    made.add_argument("name", metavar="owner", help="whose it is")


def _fits(*words: str) -> bool:
    return all(
        word.isprintable() and not word.startswith("#") and not any(sign in word for sign in ": =") for word in words
    )


def _unfit() -> int:
    return complain(NAME, "a name has no white space, no colon and no equals sign in it, and does not begin with #")


def _password(options: Namespace, out: TextIO) -> int:
    if not options.name or not _fits(options.name, options.groups):
        return _unfit()
    if sys.stdin.isatty():
        secret = getpass("password: ")
        if secret != getpass("once more: "):
            return complain(NAME, "these were two passwords")
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret.isprintable() or not 1 <= len(secret.encode()) <= password.LONGEST:
        return complain(NAME, f"a password has 1 to {password.LONGEST} bytes, all of them printable")
    groups = f":{options.groups}" if options.groups else ""
    print(f"{options.name}:{password.make(secret.encode())}{groups}", file=out)
    return 0


def _key(options: Namespace, out: TextIO) -> int:
    if not options.name or not _fits(options.name):
        return _unfit()
    if not 0 <= options.days <= 36_500:
        return complain(NAME, "a key is good for 1 to 36500 days, or for ever")
    key = secrets.token_urlsafe(32)
    until = (datetime.now(UTC) + timedelta(days=options.days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    print(f"the key, which stands nowhere else: {key}", file=sys.stderr)
    print(f"{keys.digest_of(key.encode())} {options.name}" + (f" expires={until}" if options.days else ""), file=out)
    return 0


def _secret(options: Namespace, out: TextIO) -> int:
    if not options.name or not options.id or not _fits(options.name, options.id):
        return _unfit()
    print(f"{options.id} {options.name} {secrets.token_urlsafe(32)}", file=out)
    return 0
