"""POST /api/scale: the one request that changes something. It asks for what Admin.Scale asks for, and needs the token."""

from __future__ import annotations

import hmac
import json
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.json_format import ParseDict, ParseError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deeprec_ext.aimaster.scaling.queue import QueueFullError, ScalingQueue
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.webserver import body_of

BODY_MAX = 4_096
REASON = "by hand, from the dashboard"


def may_scale(request: Request, token: str) -> bool:
    """Whether the request carries the job's token. Without a token nobody may."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return bool(token) and scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def same_origin(request: Request) -> bool:
    """A browser says from which page a request comes; other programs say nothing."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()


async def scale(request: Request, scalings: ScalingQueue, token: str) -> Response:
    """Body: the fields of ScaleRequest as JSON, for example `{"ps": 4, "dry_run": true}`."""
    if not same_origin(request):
        return _refused("this request comes from another page", 403)
    if not may_scale(request, token):
        return _refused("the page is read-only: open it with the URL that `deeprec-ext status` shows", 403)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _refused("the body must be application/json", 415)
    body = await body_of(request, BODY_MAX)
    if body is None:
        return _refused(f"the body is longer than {BODY_MAX} bytes", 413)
    try:
        wanted = json.loads(body)
        if not isinstance(wanted, dict):
            raise ValueError("it is no object")
        asked = ParseDict(wanted, pb.ScaleRequest())
    except (ValueError, ParseError, RecursionError) as error:
        return _refused(f"no request for a scaling: {str(error)[:200]}", 400)
    asked.reason = asked.reason[:200] or REASON
    try:
        reply = await scalings.request(asked)
    except QueueFullError as error:
        return _refused(str(error), 429)
    except DeepRecError as error:
        return _refused(str(error), 409)
    plan: Any = json.loads(reply.plan_json) if reply.plan_json else None
    return JSONResponse({"scaling_id": reply.scaling_id, "message": reply.message, "plan": plan})


def _refused(error: str, code: int) -> JSONResponse:
    return JSONResponse({"error": error}, code)
