"""The database behind an address: engine, settings of SQLite, migrations."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATION_LOCK = 0x68616E67  # "hang": several dashboards that start together migrate one after another


class StoreError(RuntimeError):
    """A database that cannot be used. The message says what to do."""


def url_of(database: str) -> URL:
    """The address of a database: a path is an SQLite file, `postgresql://` means the driver psycopg."""
    if "://" not in database:
        return URL.create("sqlite", database=str(Path(database).expanduser().absolute()))
    try:
        url = make_url(database)
    except ArgumentError as error:
        raise StoreError(f"not the address of a database: {error}") from None
    if url.drivername in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername in ("sqlite", "postgresql+psycopg"):
        return url
    raise StoreError(f"the database must be SQLite or PostgreSQL, not {url.drivername}")


def connect(url: URL) -> Engine:
    """An engine for `url`, with SQLite in WAL mode."""
    if url.drivername != "sqlite":
        # Without an encoding of its own a client takes the database's, and gets bytes where that is SQL_ASCII.
        arguments = {"connect_timeout": 5, "client_encoding": "utf8"}
        return create_engine(url, pool_size=5, pool_pre_ping=True, connect_args=arguments)
    engine = create_engine(url, connect_args={"timeout": 10, "check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # NORMAL loses nothing when the process is killed; only a power failure can take the last moments' commits.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "journal_size_limit=67108864"):
        connection.execute(f"PRAGMA {pragma}")


def lock_file(url: URL) -> IO[str] | None:
    """Makes an SQLite file, private, and holds it for this process. Raises StoreError if another dashboard has it."""
    if url.drivername != "sqlite":
        return None
    path = Path(url.database or "")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    held = Path(f"{url.database}.lock").open("w")  # noqa: SIM115 - open as long as the store is
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise StoreError(
            f"{url.database} is in use by another dashboard; several dashboards need PostgreSQL (--database postgresql://...)"
        ) from None
    return held


def migrate(engine: Engine, revision: str = "head") -> None:
    """Brings the tables to `revision`. Raises StoreError for a database that cannot hold them."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
            if encoding != "UTF8":  # names and messages come in every script
                raise StoreError(f"the database has the encoding {encoding}; make one with ENCODING 'UTF8'")
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        try:
            command.upgrade(configuration(connection), revision)
        except CommandError as error:
            raise StoreError(f"the database is of a newer hangwatch, or not one of its own: {error}") from error


def configuration(connection: Connection) -> Config:
    """alembic's configuration, working through `connection`; there is no alembic.ini."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config
