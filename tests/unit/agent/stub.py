"""A dashboard's ingest with scripted answers, on a real socket."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Sent:
    """One request as it came."""

    kind: str
    document: dict[str, Any]
    headers: dict[str, str]
    connection: int


@dataclass
class Stub:
    """Answers with the next of `script`, and with 200 when there is none left."""

    script: list[Reply] = field(default_factory=list)
    got: list[Sent] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)  # until it is set, requests wait

    def __post_init__(self) -> None:
        self.answers.set()

    def start(self, port: int = 0) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kinds(self) -> list[str]:
        return [sent.kind for sent in self.got]

    def wait(self, wanted: Callable[[], Any], timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while not wanted():
            assert time.monotonic() < deadline, f"it did not happen; got {self.kinds()}"
            time.sleep(0.01)


def accepted(number: int, *commands: dict[str, str]) -> Reply:
    return 200, {"accepted": number, "server_time": 1e9, "commands": list(commands)}


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            document = json.loads(gzip.decompress(body))
            headers = {name.lower(): value for name, value in self.headers.items()}
            # The answer is chosen first: a test that sees a request may write the script for the next one.
            status, answer = stub.script.pop(0) if stub.script else accepted(0)
            stub.got.append(Sent(self.path.rsplit("/", 1)[1], document, headers, self.client_address[1]))
            stub.answers.wait(100)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *ignored: Any) -> None:
            pass

    return Handler
