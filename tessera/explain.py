"""A conversion in words: what each container asked for in HAMi's names, and what its claim asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from claim_mutator.container import Percent, Reading, Request
from claim_mutator.conversion import Conversion
from claim_mutator.pod import Pod
from claim_mutator.refusal import Pointer


def explain(pod: Pod, conversion: Conversion) -> Iterator[tuple[Pointer, str]]:
    """Place and sentence, containers first, then the claim's requests."""
    for reading in conversion.readings:
        if reading.keys:
            yield reading.pointer, _container(pod, reading, conversion)
    if conversion.template is None:
        return
    devices = conversion.template.devices
    name = conversion.template.name
    for request in devices["requests"]:
        yield ("spec",), f"request {request['name']} of {name}: {_request(request)}"
    for constraint in devices.get("constraints", ()):
        requests = ", ".join(constraint["requests"])
        if "distinctAttribute" in constraint:
            yield ("spec",), f"{requests} of {name}: different cards"
        else:
            yield ("spec",), f"{requests} of {name}: cards with the same {constraint['matchAttribute']}"
    for config in devices.get("config", ()):
        yield (
            ("spec",),
            f"{', '.join(config['requests'])} of {name}: {_terms(config['opaque']['parameters'])}",
        )


def _container(pod: Pod, reading: Reading, conversion: Conversion) -> str:
    resources = pod.container(reading.pointer).resources
    limits: Mapping[str, Any] = getattr(resources, "limits", None) or {}
    written = ", ".join(f"{key}: {limits[key]}" for where, key in reading.keys if where == "limits")
    meaning = _meaning(reading.request) if reading.request else "no card"
    requests = ", ".join(conversion.requests.get(reading.pointer, ()))
    return (
        f"container {reading.name!r}: {written} means {meaning}{f': request {requests}' if requests else ''}"
    )


def _meaning(request: Request) -> str:
    cards = "1 card" if request.count == 1 else f"{request.count} different cards"
    each = "" if request.count == 1 else " of each"
    if request.memory is None:
        memory = f"all memory{each}"
    elif isinstance(request.memory, Percent):
        memory = f"{request.memory.value} % of the memory{each}"
    else:
        memory = f"{request.memory} MiB{each}"
    if request.cores == 100:
        cores = "all compute, nobody else on the card"
    elif request.cores:
        cores = f"{request.cores} % of compute"
    else:
        cores = "no limit of compute"
    return f"{cards}, {memory}, {cores}"


def _request(request: Mapping[str, Any]) -> str:
    if "exactly" in request:
        return _form(request["exactly"])
    forms = (f"{form['name']} ({_form(form)})" for form in request["firstAvailable"])
    return "the first that there is of " + ", ".join(forms)


def _form(form: Mapping[str, Any]) -> str:
    capacity = form.get("capacity", {}).get("requests", {})
    amounts = ", ".join(f"{key} {value}" for key, value in capacity.items()) or "all memory"
    which = "".join(f", where {selector['cel']['expression']}" for selector in form.get("selectors", ()))
    return f"{form['count']} of {form['deviceClassName']} with {amounts}{which}"


def _terms(parameters: Mapping[str, Any]) -> str:
    told = [
        f"{key} {parameters[key]}" for key in ("enforcement", "corePolicy", "priority") if key in parameters
    ]
    for cap in parameters.get("caps", ()):
        limits = ", ".join(f"{key} {cap[key]}" for key in ("memory", "cores") if key in cap)
        told.append(f"container {cap['container']!r} at most {limits}")
    return "; ".join(told)
