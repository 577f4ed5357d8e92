"""AdmissionReviews of 8 KB, and a client that sends them as fast as they are answered.

The client is one thread over non-blocking TLS sockets that does no more than it must: on few cores whatever
it takes is taken from the webhook.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SIZE = 8192  # bytes of a body
_NAME, _UID = "name-to-be-put-here", "00000000-0000-4000-8000-000000000000"
_TOKEN = "kube-api-access-zzzzz"


def pod(name: str, limits: dict[str, str]) -> dict[str, Any]:
    """Four containers, of which the first has the limits, and much else that nobody here reads."""
    containers = []
    for number in range(4):
        env = [{"name": f"SETTING_{n}", "value": f"value-{number}-{n}"} for n in range(12)]
        mounts = [{"name": _TOKEN, "mountPath": "/var/run/secrets", "readOnly": True}]
        mounts += [
            {"name": f"volume-{n}", "mountPath": f"/mnt/volume-{n}", "readOnly": True} for n in range(6)
        ]
        own = {"cpu": "2", "memory": "4Gi"} | (limits if number == 0 else {})
        containers.append(
            {
                "name": f"container-{number}",
                "image": "registry.example/team/app:1.2.3",
                "env": env,
                "volumeMounts": mounts,
                "resources": {"limits": own, "requests": own},
                "terminationMessagePath": "/dev/termination-log",
                "imagePullPolicy": "IfNotPresent",
            }
        )
    volumes: list[dict[str, Any]] = [{"name": _TOKEN, "projected": {"sources": []}}]
    volumes += [{"name": f"volume-{n}", "configMap": {"name": f"configuration-{n}"}} for n in range(6)]
    metadata = {"name": name, "namespace": "default", "labels": {"app": "bench"}}
    spec = {"containers": containers, "volumes": volumes, "schedulerName": "default-scheduler"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Bodies:
    """Reviews of Pods that differ as those of one Deployment do."""

    def __init__(self, limits: dict[str, str]) -> None:
        document = pod(_NAME, limits)
        kind = {"group": "", "version": "v1", "kind": "Pod"}
        resource = {"group": "", "version": "v1", "resource": "pods"}
        request = {
            "uid": _UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": _NAME,
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "bench"},
            "object": document,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        }
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        filling = SIZE - len(json.dumps(review, separators=(",", ":")))
        document["metadata"]["annotations"] = {"filling": "x" * max(0, filling - 34)}
        self._text = json.dumps(review, separators=(",", ":")).encode()

    def __next__(self) -> bytes:
        unique = str(uuid.uuid4())
        text = self._text.replace(_TOKEN.encode(), f"kube-api-access-{unique[:5]}".encode())
        return text.replace(_NAME.encode(), f"p-{unique[:17]}".encode()).replace(
            _UID.encode(), unique.encode()
        )

    def __iter__(self) -> Iterator[bytes]:
        return self

    @property
    def size(self) -> int:
        return len(self._text)


_HEAD = (
    b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)


class BadAnswer(Exception):  # noqa: N818 - what came
    """Not HTTP 200 with `allowed`."""


@dataclass
class _Call:
    connection: ssl.SSLSocket
    began: float = 0.0
    answer: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Result:
    """Seconds of each review, and of all together."""

    times: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds


def send(port: int, bodies: Bodies, connections: int, *, count: int = 0, seconds: float = 0.0) -> Result:
    """`count` reviews, or for `seconds`. Raises BadAnswer, OSError."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    calls = [_Call(_connect(context, port)) for _ in range(connections)]
    end = time.perf_counter() + seconds if seconds else float("inf")
    left = count or (1 << 60)
    times: list[float] = []
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        for call in calls[:left]:
            selector.register(call.connection, selectors.EVENT_READ, call)
            _ask(call, next(bodies))
            left -= 1
        waiting = len(selector.get_map())
        while waiting:
            for key, _ in selector.select(10.0) or _silent():
                call = key.data
                if not _is_answered(call):
                    continue
                now = time.perf_counter()
                times.append(now - call.began)
                if left and now < end:
                    left -= 1
                    _ask(call, next(bodies))
                else:
                    waiting -= 1
        took = time.perf_counter() - began
    for call in calls:
        call.connection.close()
    return Result(times, took)


def _silent() -> list[tuple[selectors.SelectorKey, int]]:
    raise BadAnswer("no answer within 10 s")


def _connect(context: ssl.SSLContext, port: int) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), 10.0)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname="localhost")


def _ask(call: _Call, body: bytes) -> None:
    call.answer.clear()
    call.began = time.perf_counter()
    call.connection.sendall(_HEAD % len(body) + body)


def _is_answered(call: _Call) -> bool:
    chunk = call.connection.recv(65536)
    if not chunk:
        raise BadAnswer("the connection was closed")
    call.answer += chunk
    end = call.answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(call.answer[:end]).lower()
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    if len(call.answer) < end + 4 + length:
        return False
    if not head.startswith(b"http/1.1 200") or b'"allowed":true' not in call.answer:
        raise BadAnswer(bytes(call.answer[:600]).decode(errors="replace"))
    return True
