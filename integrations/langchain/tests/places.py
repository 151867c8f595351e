"""Every place where LangChain shows what a run said: handlers of every kind, traces, prints, caches."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook
from langsmith import Client

HOOK: ContextVar[Any] = ContextVar("hook", default=None)
register_configure_hook(HOOK, inheritable=True)


class Everything(BaseCallbackHandler):
    """Keeps whatever callbacks are shown."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.names: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):

            def keep(*args: Any, **kwargs: Any) -> None:
                self.names.append(name)
                # A model is described by its fields, which here hold the script.
                self.seen.append((args[1:] if name.endswith("_start") else args, kwargs))

            return keep
        return object.__getattribute__(self, name)


@contextmanager
def langsmith_server() -> Iterator[tuple[Client, list[bytes]]]:
    """A client of LangSmith whose service is on this machine, and what was sent to it."""
    bodies: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _take(self) -> None:
            bodies.append(self.rfile.read(int(self.headers.get("content-length") or 0)))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_PATCH = do_GET = _take

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield Client(api_url=url, api_key="none", auto_batch_tracing=False), bodies
    finally:
        server.shutdown()
        server.server_close()
