"""`hangwatch dashboard`: the service that gathers the watchdogs of all nodes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hangwatch.errors import HangwatchError

if TYPE_CHECKING:
    from hangwatch_dashboard.config import Config

HELP = "serve the dashboard that gathers all nodes, judges across them and keeps incidents"


class DashboardError(HangwatchError):
    """The dashboard cannot be started. The message says what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; elsewhere than loopback tokens are needed"
    )
    parser.add_argument("--port", type=int, default=8470, help="port to listen on (8470)")
    parser.add_argument(
        "--database",
        metavar="PATH|URL",
        default="",
        help="an SQLite file (default: ~/.local/share/hangwatch/dashboard.db), or postgresql://...",
    )
    parser.add_argument("--certificate", metavar="FILE", default="", help="serve TLS with this certificate (PEM)")
    parser.add_argument("--key", metavar="FILE", default="", help="the certificate's key (PEM)")
    parser.add_argument(
        "--public-url", metavar="URL", default="", help="the address that people use, for links in messages"
    )
    parser.add_argument(
        "--trusted-proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="believe the X-Forwarded-For of this proxy, an address or a network; also HANGWATCH_TRUSTED_PROXY",
    )
    parser.add_argument(
        "--notify",
        metavar="URL",
        action="append",
        default=[],
        help="tell people here (apprise); better HANGWATCH_NOTIFY, for URLs hold secrets",
    )
    parser.add_argument("--keep-days", type=float, default=30.0, help="forget finished jobs after so many days (30)")
    parser.add_argument(
        "--keep-incidents-days", type=float, default=365.0, help="forget incidents after so many days (365)"
    )
    parser.epilog = (
        "Tokens come from HANGWATCH_INGEST_TOKEN, HANGWATCH_READ_TOKEN and HANGWATCH_ADMIN_TOKEN, "
        "or from the files named in the same variables with _FILE behind."
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        from hangwatch_dashboard import config, serve
        from hangwatch_dashboard.store.engine import StoreError
    except ImportError as error:
        raise DashboardError(
            f"the dashboard needs more ({error.name} is missing): in a clone, pip install '.[dashboard]'"
        ) from error
    try:
        serve.serve(_config(arguments))
    except (config.ConfigError, StoreError) as error:
        raise DashboardError(str(error)) from error
    return 0


def _config(arguments: argparse.Namespace) -> Config:
    from hangwatch_dashboard.config import Config, default_database, notify_from, proxies_from, tokens_from

    given: dict[str, Any] = dict(tokens_from(os.environ))
    if static := os.environ.get("HANGWATCH_STATIC"):
        given["static"] = Path(static)
    return Config(
        host=arguments.host,
        port=arguments.port,
        database=arguments.database or os.environ.get("HANGWATCH_DATABASE", "") or default_database(),
        certificate=arguments.certificate,
        key=arguments.key,
        public_url=arguments.public_url,
        trusted_proxies=(*proxies_from(os.environ), *arguments.trusted_proxy),
        notify=(*notify_from(os.environ), *arguments.notify),
        keep_days=arguments.keep_days,
        keep_incidents_days=arguments.keep_incidents_days,
        **given,
    )
