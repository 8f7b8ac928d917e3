"""A small server that answers as OpenAI's /embeddings does, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from memsvc.embedding.hashing import HashingEmbedder

DIMENSION = 8
MEANING = HashingEmbedder(DIMENSION)


@dataclass(frozen=True)
class Request:
    """What was asked."""

    path: str
    headers: Message
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        texts: list[str] = self.body["input"]
        return texts


@dataclass(frozen=True)
class Answer:
    """What is answered: JSON, or text as it is."""

    content: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Answering = Callable[[Request], Answer]


def vectors(request: Request) -> Answer:
    """The vectors of the hashing embedder, the last one first: only `index` says which is whose."""
    rows = [
        {"object": "embedding", "index": index, "embedding": [3 * value for value in MEANING.embed_query(text)]}
        for index, text in enumerate(request.texts)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return Answer({"object": "list", "data": rows[::-1], "model": request.body["model"], "usage": usage})


class Server:
    """Answers with what is in `next`, one after the other, then with vectors; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.next: list[Answering] = []
        self.ended = Event()
        self.host = ""

    @property
    def url(self) -> str:
        return f"http://{self.host}/v1"

    def silence(self, request: Request) -> Answer:
        """No answer, as long as the server runs."""
        self.ended.wait()
        return vectors(request)


@contextmanager
def serving() -> Iterator[Server]:
    """The server on a free port, in threads of its own."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = Request(self.path, self.headers, body)
            server.asked.append(request)
            answer = (server.next.pop(0) if server.next else vectors)(request)
            plain = answer.content if isinstance(answer.content, str) else None
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json" if plain is None else "text/html")
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(
                (answer.content if isinstance(answer.content, str) else json.dumps(answer.content)).encode()
            )

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.host = f"127.0.0.1:{http.server_address[1]}"
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            http.shutdown()
            thread.join()
