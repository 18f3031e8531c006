"""Locations of databases: URLs and paths, without SQLAlchemy."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISDIR
from urllib.parse import unquote

from ..errors import StoreDenied

_SQLITE = "sqlite:///"


def default_url() -> str:
    """Return the URL of the user's database: a SQLite file in the platform's data folder.

    Callers check `TILEWRIGHT_DB` and `--db` first; this module reads only the environment variable
    that names the data folder (`XDG_DATA_HOME`).
    """
    import platformdirs

    folder = Path(platformdirs.user_data_dir("tilewright", appauthor=False))
    return _SQLITE + str(folder / "tilewright.sqlite")


def sqlite_path(url: str) -> Path:
    """Return the file of `sqlite:///FILE` or of a plain path. Raise StoreDenied for other URLs."""
    if "://" not in url:
        name = url
    elif url.startswith(_SQLITE):
        name = unquote(url[len(_SQLITE) :].split("?", 1)[0])
    else:
        raise StoreDenied(
            f"database {without_secrets(url)!r}: unknown kind of database; "
            "give sqlite:///FILE, a path, or postgresql://USER@HOST/NAME"
        )
    if name in ("", ":memory:"):
        raise StoreDenied(f"database {url!r}: a database is a file; give sqlite:///FILE or a path")
    return Path(name).expanduser().absolute()


def file_is_there(path: Path) -> bool:
    """Return whether a file exists at `path`. Raise StoreDenied if it is a folder or unreadable."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreDenied(
            f"database {path}: cannot be opened ({error.strerror}); check that you may read it "
            "and its folder"
        ) from error
    if S_ISDIR(mode):
        raise StoreDenied(f"database {path}: this is a folder; name a file in it")
    return True


def is_postgres(url: str) -> bool:
    """Return whether `url` has a PostgreSQL scheme: `postgresql://`, `postgres://`, or either with
    a driver (`postgresql+psycopg://`)."""
    return url.split("://", 1)[0].split("+", 1)[0] in ("postgresql", "postgres") and "://" in url


def name_of(url: str) -> str:
    """Return the name of the database of `url` for messages, without secrets."""
    return without_secrets(url) if is_postgres(url) else url


def without_secrets(url: str) -> str:
    """Return `url` for messages, without user, password and query string."""
    scheme, rest = url.split("://", 1)
    return f"{scheme}://{rest.split('?', 1)[0].rsplit('@', 1)[-1]}"
