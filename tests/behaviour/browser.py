"""A headless Chromium for tests, driven over the pipe of its DevTools protocol: no further package, no port.

Everything it does is remembered: requests, what the console says, errors of the page.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 30.0
"""Deadline of one answer of the browser."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-extensions", "--disable-breakpad", "--disable-crash-reporter", "--no-proxy-server", "--hide-scrollbars",
    "--mute-audio", "--remote-debugging-pipe", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def find() -> str | None:
    """The program; None if it is not installed (Debian package `chromium`)."""
    return next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)


class Browser:
    """Context manager with one page."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Browser:
        program = find()
        assert program is not None
        theirs_in, ours_out = _high(os.pipe())
        ours_in, theirs_out = _high(os.pipe())

        # By a shell, and not by Python between fork and exec: there gRPC's threads are begun anew, and may end the child.
        words = ["bash", "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', program, *FLAGS]
        words += [f"--user-data-dir={self._directory / 'profile'}", "about:blank"]
        environment = {**os.environ, "HOME": str(self._directory), "XDG_CONFIG_HOME": str(self._directory)}
        self._errors = (self._directory / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            words, pass_fds=(theirs_in, theirs_out), stdout=self._errors, stderr=self._errors, start_new_session=True,
            env=environment,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = os.fdopen(ours_out, "wb", buffering=0), os.fdopen(ours_in, "rb", buffering=0)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        for sign, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            try:
                os.killpg(self._process.pid, sign)
                self._process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break
        self._out.close()
        self._reader.join(5)
        self._in.close()
        self._errors.close()

    # ------------------------------------------------------------------------------------------------ the protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command. Fails when there is none in time, or an error."""
        number = next(self._numbers)
        self._answers[number] = answers = queue.Queue(1)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        try:
            answer = answers.get(timeout=SECONDS)
        except queue.Empty:
            raise AssertionError(f"Chromium did not answer {method} within {SECONDS:g} s") from None
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        return answer["result"]

    def _read(self) -> None:
        rest = b""
        while data := self._in.read(1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        method, values = message.get("method"), message.get("params", {})
        if "id" in message:
            self._answers.pop(message["id"]).put(message)
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "assert", "warning"):
            self.complaints.append(" ".join(str(one.get("value", one.get("description"))) for one in values["args"]))
        elif method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{values['entry']['text']} {values['entry'].get('url', '')}")

    # ------------------------------------------------------------------------------------------------ the page

    def show(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        """Size of the window in CSS pixels, and what the user's system prefers; nothing moves while it is clicked on."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'", f"{url} to load")

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def until(self, script: str, what: str = "", seconds: float = SECONDS, met: Callable[[Any], bool] = bool) -> Any:
        """The first true value of the expression."""
        deadline = time.monotonic() + seconds
        while not met(value := self.run(script)):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"waited {seconds:g} s in vain for {what or script}; last: {value!r}; page said {self.complaints}"
                )
            time.sleep(0.05)
        return value

    def sees(self, selector: str, words: str, seconds: float = SECONDS) -> str:
        """Until these words stand in the first such element; everything that stands there then."""
        script = f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').trim()"
        return self.until(script, f"{words!r} in {selector}", seconds, met=lambda text: words in text)

    def counts(self, selector: str, number: int, seconds: float = SECONDS) -> None:
        """Until there are so many such elements."""
        script = f"document.querySelectorAll({json.dumps(selector)}).length"
        self.until(script, f"{number} of {selector}", seconds, met=lambda found: found == number)

    def text(self, selector: str) -> str:
        """What stands there; empty if there is no such element."""
        return self.run(f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').trim()")

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of it."""
        script = f"""(() => {{
            const one = document.querySelector({json.dumps(selector)});
            one.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = one.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        x, y = self.run(script)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot as PNG, of the whole page or of what is seen."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


def _high(pair: tuple[int, int]) -> tuple[int, int]:
    """Away from 3 and 4, which the child uses."""
    moved = fcntl.fcntl(pair[0], fcntl.F_DUPFD_CLOEXEC, 20), fcntl.fcntl(pair[1], fcntl.F_DUPFD_CLOEXEC, 20)
    for one in pair:
        os.close(one)
    return moved
