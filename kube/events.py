"""Kubernetes Events: what went wrong, told where people look first (`kubectl describe`).

`warn` and `note` may be called from any thread and do nothing but remember; `run` writes. Nobody waits for an
Event, and none is worth more than the API server's time: repetitions of one reason about one object are one
Event with a count, written less and less often; all of them together are limited; what can't be written is
dropped. Where nothing happens nothing is written.

Core v1 Events rather than events.k8s.io/v1: both end up as the same objects, and this group is the one that
most clusters' roles already allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import AlreadyExists, ApiError, NotFound, Unavailable

_log = logging.getLogger(__name__)
_NAMESPACE_OF_NODES = "default"  # where Events about objects without a namespace live
_LONGEST_MESSAGE = 1024  # characters; the API server refuses longer ones
_LONGEST_NAME = 230  # of an object's name inside an Event's, which may have 253
_MOST_SUBJECTS = 512  # (object, reason) pairs that are remembered
_FORGOTTEN_AFTER = 3600.0  # seconds; the API server itself keeps Events for an hour
_FIRST_REPEAT, _LAST_REPEAT = 10.0, 300.0  # seconds between two writes of one Event; doubles
_BURST, _PER_SECOND = 20, 1.0  # writes at once, and in the long run
_TRIES = 4


@dataclass(frozen=True)
class ObjectRef:
    """What an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of_claim(cls, namespace: str, name: str, uid: str) -> ObjectRef:
        return cls("resource.k8s.io/v1", "ResourceClaim", name, namespace, uid)

    @classmethod
    def of_node(cls, name: str) -> ObjectRef:
        """With its name for a UID, as the kubelet does: `kubectl describe node` looks for both."""
        return cls("v1", "Node", name, uid=name)


@dataclass
class _Subject:
    """One reason about one object; `unwritten`: how often it was said since the last write."""

    type: str
    message: str = ""
    count: int = 0
    unwritten: int = 0
    first: float = 0.0
    last: float = 0.0
    name: str | None = None
    due: float = 0.0
    wait: float = _FIRST_REPEAT
    failures: int = 0


_Key = tuple[ObjectRef, str, str]
"""Object, reason, part."""


class Recorder:
    """`component`: the program; `instance`: which of them, such as its node.

    `clock`: seconds since 1970; `monotonic`: seconds that never jump.
    """

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        instance: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        backoff: Backoff = Backoff(),  # noqa: B008 - immutable
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._clock = clock
        self._monotonic = monotonic
        self._backoff = backoff
        self._subjects: dict[_Key, _Subject] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._tokens = float(_BURST)
        self._filled = monotonic()
        self._is_refused = False

    def warn(self, about: ObjectRef, reason: str, message: str, *, part: str = "") -> None:
        """A Warning. `reason`: one word in UpperCamelCase, the same for all of its kind.

        `part`: of the object, such as one of a node's cards, where each is worth an Event of its own.
        """
        self._say("Warning", (about, reason, part), message)

    def note(self, about: ObjectRef, reason: str, message: str, *, part: str = "") -> None:
        """A Normal Event, such as that a warning's cause is gone."""
        self._say("Normal", (about, reason, part), message)

    @property
    def pending(self) -> dict[str, int]:
        """For the dump: how often something was said since its Event was last written."""
        with self._lock:
            return {
                f"{reason} about {about.kind} {about.name} {part}".strip(): subject.unwritten
                for (about, reason, part), subject in self._subjects.items()
                if subject.unwritten
            }

    async def run(self) -> NoReturn:
        """Writes until cancelled; whatever the API server answers."""
        self._loop = asyncio.get_running_loop()
        self._woken.set()
        while True:
            await self._wait()
            self._woken.clear()
            await self.flush()

    async def flush(self) -> None:
        """Writes what is due by now."""
        for key in self._due():
            await self._token()
            await self._write(key)

    def _say(self, kind: str, key: _Key, message: str) -> None:
        now = self._clock()
        with self._lock:
            subject = self._subjects.get(key)
            if subject is None:
                if not self._has_room():
                    _log.debug("no room for the event %s", key)
                    return
                subject = self._subjects[key] = _Subject(kind, first=now)
            subject.message = message[:_LONGEST_MESSAGE]
            subject.count += 1
            subject.unwritten += 1
            subject.last = now
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the program
                self._loop.call_soon_threadsafe(self._woken.set)

    def _has_room(self) -> bool:
        """Forgets what was last said an hour ago; what is yet to be written stays."""
        old = self._clock() - _FORGOTTEN_AFTER
        for key in [
            key for key, subject in self._subjects.items() if not subject.unwritten and subject.last < old
        ]:
            del self._subjects[key]
        return len(self._subjects) < _MOST_SUBJECTS

    async def _wait(self) -> None:
        """Until something is said, or something said before is due."""
        now = self._monotonic()
        with self._lock:
            dues = [subject.due for subject in self._subjects.values() if subject.unwritten]
        timeout = max(0.0, min(dues) - now) if dues else None
        try:
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _due(self) -> list[_Key]:
        now = self._monotonic()
        with self._lock:
            return [
                key for key, subject in self._subjects.items() if subject.unwritten and subject.due <= now
            ]

    async def _token(self) -> None:
        """Waits until one more write is within the limit."""
        while True:
            now = self._monotonic()
            self._tokens = min(_BURST, self._tokens + (now - self._filled) * _PER_SECOND)
            self._filled = now
            if self._tokens >= 1:
                self._tokens -= 1
                return
            await asyncio.sleep((1 - self._tokens) / _PER_SECOND)

    async def _write(self, key: _Key) -> None:
        about, reason, _ = key
        subject = self._subjects[key]
        with self._lock:
            said, subject.unwritten = subject.unwritten, 0
            body = _event(key, subject, self._component, self._instance)
        try:
            subject.name = await self._send(about, subject.name, body)
        except ApiError as error:
            self._failed(key, subject, said, error)
        except Exception:
            # Somebody's message that can't be encoded must not end the program.
            _log.exception("the event %s about %s can't be written", reason, about)
        else:
            self._is_refused = False
            subject.failures = 0
            subject.due = self._monotonic() + subject.wait
            subject.wait = min(subject.wait * 2, _LAST_REPEAT)

    async def _send(self, about: ObjectRef, name: str | None, body: dict[str, Any]) -> str:
        """The Event's name. An Event that has expired meanwhile is made anew."""
        events = paths.events(about.namespace or _NAMESPACE_OF_NODES)
        if name is not None:
            try:
                patch = {part: body[part] for part in ("count", "lastTimestamp", "message", "type")}
                await self._client.patch(f"{events}/{name}", patch)
                return name
            except NotFound:
                pass
        name = str(body["metadata"]["name"])
        with contextlib.suppress(AlreadyExists):  # it was us: the answer to an earlier try was lost
            await self._client.create(events, body)
        return name

    def _failed(self, key: _Key, subject: _Subject, said: int, error: ApiError) -> None:
        about, reason, _ = key
        subject.failures += 1
        if isinstance(error, Unavailable) and subject.failures < _TRIES:
            with self._lock:
                subject.unwritten += said
            subject.due = self._monotonic() + self._backoff.delay(subject.failures, error.retry_after)
            return
        subject.failures = 0
        subject.due = self._monotonic() + _LAST_REPEAT
        # Once: a role without events is an administrator's choice, a namespace that is deleted is no fault.
        level = logging.DEBUG if self._is_refused else logging.WARNING
        self._is_refused = True
        _log.log(level, "event %s about %s %s is not written: %s", reason, about.kind, about.name, error)


def _event(key: _Key, subject: _Subject, component: str, instance: str) -> dict[str, Any]:
    about, reason, part = key
    namespace = about.namespace or _NAMESPACE_OF_NODES
    identity = f"{instance}/{about.uid}/{about.name}/{reason}/{part}/{subject.first}"
    name = f"{about.name[:_LONGEST_NAME].rstrip('.-')}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": _involved(about),
        "type": subject.type,
        "reason": reason,
        "message": subject.message,
        "count": subject.count,
        "firstTimestamp": _timestamp(subject.first),
        "lastTimestamp": _timestamp(subject.last),
        "source": {"component": component, "host": instance},
        "reportingComponent": component,
        "reportingInstance": instance,
    }


def _involved(about: ObjectRef) -> Mapping[str, str]:
    fields = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "name": about.name,
        "namespace": about.namespace,
        "uid": about.uid,
    }
    return {name: value for name, value in fields.items() if value}


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
