"""A small server of a model: a network of two layers, asked over HTTP, which works on one request at a time.

    python -m benchmarks.cluster.model_server --port 8000

`POST /predict` with `{"x": [16 numbers]}` answers `{"y": ...}`; `GET /load` says how many requests are in it, those that wait
among them. A request takes no less than a known time, as if the server had a core of its own. At SIGTERM it answers what it
has, and ends.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

import numpy as np

WIDTH = 16
DRAINS_SECONDS = 1.0
"""After SIGTERM: by then nobody sends it more, for it is in no Service's endpoints."""


class Model:
    def __init__(self) -> None:
        chance = np.random.default_rng(1)
        self._first, self._second = chance.standard_normal((WIDTH, 256)), chance.standard_normal(256)

    def predict(self, x: list[float]) -> float:
        hidden = np.maximum(np.asarray(x) @ self._first, 0.0)
        return float(1.0 / (1.0 + np.exp(-hidden @ self._second / 256.0)))


class Server(ThreadingHTTPServer):
    daemon_threads = False  # what is being answered is waited for
    request_queue_size = 64

    def __init__(self, port: int, seconds: float) -> None:
        super().__init__(("", port), Handler)
        self.model, self.seconds = Model(), seconds
        self.in_flight = 0
        self.counting, self.computing = threading.Lock(), threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10.0

    def do_GET(self) -> None:
        if self.path == "/load":
            self._answer(200, {"in_flight": self.server.in_flight})
        else:
            self._answer(404, {"error": f"no {self.path}"})

    def do_POST(self) -> None:
        self._count(1)
        try:
            x = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))["x"]
            with self.server.computing:
                over = time.monotonic() + self.server.seconds
                y = self.server.model.predict(x)
                time.sleep(max(0.0, over - time.monotonic()))
            self._answer(200, {"y": y})
        except (ValueError, KeyError, TypeError) as error:
            self._answer(400, {"error": str(error)})
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self.server.counting:
            self.server.in_flight += more

    def _answer(self, status: int, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=0.1, help="that a request takes")
    arguments = parser.parse_args()
    server = Server(arguments.port, arguments.seconds)

    def end(_number: int, _frame: FrameType | None) -> None:
        timer = threading.Timer(DRAINS_SECONDS, server.shutdown)
        timer.start()

    signal.signal(signal.SIGTERM, end)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
