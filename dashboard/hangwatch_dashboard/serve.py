"""Serves the application with uvicorn until a signal ends it."""

from __future__ import annotations

import gc
import logging
import socket
import sys
from types import FrameType
from typing import Any

import uvicorn

from hangwatch_dashboard.app import Application, create_app
from hangwatch_dashboard.config import Config, ConfigError
from hangwatch_dashboard.notify import apprise_notifier
from hangwatch_dashboard.protocol import Protocol, allow_many_connections
from hangwatch_dashboard.store.engine import StoreError, connect, lock_file, migrate, url_of

GRACE_S = 5
SWITCH_S = 0.0002


class Server(uvicorn.Server):
    """uvicorn, but open live streams are ended at once: they would keep it from stopping."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        service = getattr(getattr(self.config.app, "state", None), "service", None)
        if service is not None:
            service.hub.close_soon()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            config: Config = self.config.app.state.config  # type: ignore[union-attr]
            print(f"hangwatch: dashboard at {config.url}", flush=True)


def serve(config: Config) -> None:
    """Serves until SIGINT or SIGTERM. Raises ConfigError, and StoreError for a database that cannot be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config.check()
    if config.notify:
        apprise_notifier(config.notify)
    prepare(config)
    allow_many_connections()
    app = create_app(config)
    app.state.config = config
    server = Server(settings_of(app, config))
    # Thousands of records are replaced every second, by reference counting; looking for garbage among them all is
    # rarely worth the pause. Looking among the newest is, in pieces of a millisecond or two.
    gc.freeze()
    gc.set_threshold(2_000, 5_000, 100)
    # Other threads judge and write meanwhile. Each time the event loop lets go of the interpreter it waits so long to
    # get it back; at the usual 5 ms a look at 10,000 ranks would hold up answers for a tenth of a second.
    sys.setswitchinterval(SWITCH_S)
    with listening(config) as listener:
        server.run(sockets=[listener])


def settings_of(app: Application, config: Config) -> uvicorn.Config:
    """How uvicorn serves `app`."""
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        ssl_certfile=config.certificate or None,
        ssl_keyfile=config.key or None,
        http=Protocol,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        # uvicorn by itself believes X-Forwarded-For of every process on this machine, and of FORWARDED_ALLOW_IPS: a
        # client would choose the address under which its wrong tokens and half-sent bodies are counted.
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=None,
    )


def listening(config: Config) -> socket.socket:
    """The socket to serve on. Raises ConfigError: uvicorn's own way would be to end the process."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(f"cannot listen on {config.host} port {config.port}: {reason}") from error


def prepare(config: Config) -> None:
    """Tries the database before anything is served, so that what is wrong with it is said in one sentence."""
    url = url_of(config.database)
    try:
        lock = lock_file(url)
        engine = connect(url)
        try:
            migrate(engine)
        finally:
            engine.dispose()
            if lock is not None:
                lock.close()
    except StoreError:
        raise
    except Exception as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise StoreError(f"the database {url.render_as_string(hide_password=True)} cannot be used: {reason}") from error
