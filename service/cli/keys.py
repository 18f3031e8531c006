"""`keys create`, `keys list`, `keys rotate`, `keys revoke`: manage the keys of a service.

These commands change the database. A running service reads the change within a second.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from tilewright.db.errors import UnknownKey
from tilewright.db.values.jobs import ApiKey
from tilewright.service import database
from tilewright.service.access import keys
from tilewright.service.cli.options import Common, command

# Start-up: a command loads what it needs when it runs.

KeyArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The key's id: the ten letters after tw_.")
]


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer(help="Create, list, replace and revoke keys of the API.")
    app.add_typer(group, name="keys")

    @command(group, "create")
    def create(
        *,
        scopes: Annotated[
            str,
            typer.Option(
                "--scopes",
                metavar="NAMES",
                help="Permissions: one or more of submit, read, publish, admin.",
            ),
        ] = "submit,read",
        expires: Annotated[
            str | None,
            typer.Option("--expires", metavar="90d", help="Lifetime: 12h, 90d, 1y, ..."),
        ] = None,
        owner: Annotated[
            str,
            typer.Option(
                "--owner",
                metavar="NAME",
                help="The owner of its jobs and quota; by default the key itself.",
            ),
        ] = "",
        note: Annotated[str, typer.Option("--note", metavar="TEXT", help="A comment.")] = "",
        common: Common = Common(),  # noqa: B008  # a frozen value
    ) -> None:
        """Create a key. It is shown only once: the database has only its hash."""
        now = datetime.now(UTC)
        text, key = keys.new_key(
            owner=keys.checked_owner(owner) if owner else "",
            note=keys.checked_note(note),
            scopes=keys.scopes_of(scopes),
            now=now,
            expires_at=keys.expiry_of(expires, now) if expires else None,
            entropy=os.urandom,
        )
        with database.session(common.db) as store:
            store.add_key(key)
        _show_new(text, key, common)

    @command(group, "list")
    def list_(common: Common = Common()) -> None:  # noqa: B008
        """List every key with its owner, scopes and state. The secrets are not stored."""
        from tilewright.service.cli.render import grid

        with database.session(common.db) as store:
            stored = store.keys()
        documents = [key_document(key) for key in stored.by_id.values()]
        output = common.output()
        if not documents:
            output.remark("no keys yet; until the first one, requests from this machine need none")
        damaged = stored.rows - len(documents)
        if damaged:
            output.remark(f"{damaged} damaged keys are invalid; see `tilewright db check`")
        columns = ("id", "owner", "scopes", "state", "created_at", "expires_at", "note")
        rows = [tuple(_cell(document[name]) for name in columns) for document in documents]
        output.result({"keys": documents}, grid(columns, rows) if rows else None)

    @command(group, "rotate")
    def rotate(
        key_id: KeyArgument,
        *,
        keep: Annotated[
            str,
            typer.Option("--keep", metavar="7d", help="Time for which the old key remains valid."),
        ] = "7d",
        expires: Annotated[
            str | None,
            typer.Option("--expires", metavar="90d", help="Lifetime of the new key: 12h, 90d, ..."),
        ] = None,
        common: Common = Common(),  # noqa: B008
    ) -> None:
        """Create a key with the owner and scopes of an existing key. The old key expires after
        --keep."""
        now = datetime.now(UTC)
        with database.session(common.db) as store:
            old = store.keys().by_id.get(key_id)
            if old is None:
                raise UnknownKey(f"key {key_id[:16]!r}: no such key")
            text, key = keys.new_key(
                owner=old.owner,
                note=old.note,
                scopes=tuple(keys.KeyScope(name) for name in old.scopes),
                now=now,
                expires_at=keys.expiry_of(expires, now) if expires else None,
                entropy=os.urandom,
            )
            old = store.replace_key(key_id, key, keys.expiry_of(keep, now))
        common.output().remark(f"key {old.id} is valid until {_moment(old.expires_at)}")
        _show_new(text, key, common)

    @command(group, "revoke")
    def revoke(key_id: KeyArgument, common: Common = Common()) -> None:  # noqa: B008
        """Revoke a key immediately. It remains in the list and cannot be restored."""
        from tilewright.service.cli.render import facts

        with database.session(common.db) as store:
            document = key_document(store.revoke_key(key_id))
        rows = [(name, _cell(value)) for name, value in document.items()]
        common.output().result(document, facts(rows))


def key_document(key: ApiKey) -> dict[str, Any]:
    """Return a key as JSON, without its secret and the hash of the secret."""
    return {
        "id": key.id,
        "owner": key.owner,
        "scopes": list(key.scopes),
        "state": _state(key),
        "note": key.note,
        "created_at": _moment(key.created_at),
        "expires_at": _moment(key.expires_at),
        "revoked_at": _moment(key.revoked_at),
    }


def _show_new(text: str, key: ApiKey, common: Common) -> None:
    output = common.output()
    if output.as_json:
        output.print_json({**key_document(key), "key": text})
        return
    # Standard output has only the key, for `KEY=$(tilewright keys create)`.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    ends = f", valid until {_moment(key.expires_at)}" if key.expires_at else ""
    output.remark(f"key {key.id} of {key.owner} for {', '.join(key.scopes)}{ends}")
    output.remark("It is not shown again. Use it as TILEWRIGHT_API_KEY.")


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
        return "expired"
    return "valid"


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return "" if value is None else str(value)
