"""Reviews that somebody has damaged: each gets an answer, and a patch that can be applied.

From the corpus's Pods, with a seed, so that what fails fails again. More of them, in one command:

    TESSERA_FUZZ_REVIEWS=100000 .venv/bin/python -m pytest tests/unit/claim_mutator/test_fuzz.py
"""

from __future__ import annotations

import base64
import copy
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

from claim_mutator import workload
from claim_mutator.admission import BadReview
from tests.unit.claim_mutator.admissions import admission

REVIEWS = int(os.environ.get("TESSERA_FUZZ_REVIEWS", "3000"))
SEED = int(os.environ.get("TESSERA_FUZZ_SEED", "5"))
CORPUS = Path(__file__).parents[2] / "corpus" / "manifests"

KEYS = [
    *(f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")),
    *("nvidia.com/gpu-mem", "nvidia.com/gpumem\u2212percentage", "nvidia.com/use-gputype"),
    *("nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid", "nvidia.com/numa-bind", "nvidia.com/vgpu-mode"),
    *("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy", "hami.io/webhook"),
    *("hami.io/vgpu-node", "limits", "requests", "claims", "name", "env", "value", "restartPolicy"),
    *("privileged", "nodeName", "affinity", "matchFields", "spec"),
]
_TEXTS = [
    *("0", "1", "-1", "8Gi", "1e9", "100", "101", "5k", "\u0663", "\u22121", "NaN", "mig", "true"),
    *("topology-aware", "ignore", "Always", "a,b,,c", "';", '"])'),
]
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 1e300, 0.5, "", "\x00", "x" * 300, *_TEXTS),
    *([], {}, [[]], [{}], [None], {"": ""}, {"name": "tessera"}, [{"name": "tessera"}]),
)


def pods() -> list[dict[str, Any]]:
    found = []
    for file in sorted(CORPUS.glob("*.yaml")):
        try:
            documents = [each for each in yaml.safe_load_all(file.read_text()) if isinstance(each, dict)]
        except yaml.YAMLError:
            continue
        for document in documents:
            for pointer in workload.templates(document):
                template = workload.at(document, pointer)
                found.append(
                    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}} | copy.deepcopy(template)
                )
    return found


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (holder, key) in it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield value, key
            yield from places(each)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield value, index
            yield from places(each)


def damage(document: dict[str, Any], chance: random.Random) -> None:
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5))):
        holder, key = chance.choice(list(places(document)))
        match chance.randrange(6):
            case 0:
                del holder[key]
            case 1 | 2:
                holder[key] = copy.deepcopy(chance.choice(JUNK))
            case 3 if isinstance(holder, dict):
                holder[chance.choice(KEYS)] = copy.deepcopy(chance.choice(JUNK))
            case 4 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case 5 if isinstance(holder, dict):
                holder[chance.choice(KEYS)] = holder.pop(key)
            case _:
                holder[key] = {"nvidia.com/gpu": holder[key]}
        if not document:
            return


def body_of(pod: dict[str, Any], chance: random.Random) -> tuple[bytes, dict[str, Any]]:
    request = {
        "uid": f"u-{chance.randrange(10**9)}",
        "kind": {"kind": "Pod" if chance.random() < 0.9 else "Deployment"},
        "namespace": chance.choice(("n", "n", "limited", "full")),
        "operation": "CREATE" if chance.random() < 0.8 else "UPDATE",
        "object": pod,
        "dryRun": chance.random() < 0.1,
    }
    if request["operation"] == "UPDATE":
        claims = [{"name": "tessera", "resourceClaimTemplateName": "tessera-1"}]
        request["oldObject"] = chance.choice(
            (pod, {"spec": {"resourceClaims": claims, "containers": []}}, None, "x")
        )
    body = json.dumps({"request": request}).encode()
    if chance.random() < 0.05:
        cut = chance.randrange(len(body))
        piece = chance.choice((b"", b"\xff", b"{", b'"', b"\x00", b"[" * 50))
        body = body[:cut] + piece + body[cut + chance.randrange(3) :]
    return body, request


async def test_every_review_is_answered() -> None:
    chance = random.Random(SEED)  # noqa: S311 - no secret
    originals, results = pods(), Counter[str]()
    served = admission()
    assert len(originals) > 80
    for number in range(REVIEWS):
        pod = copy.deepcopy(chance.choice(originals))
        damage(pod, chance)
        body, request = body_of(pod, chance)
        try:
            answer = json.loads(await served.review(body))["response"]
        except BadReview:
            results["no review"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"seed {SEED}, review {number}: {body.decode(errors='replace')}") from error
        results["allowed" if answer["allowed"] else f"refused {answer['status']['code']}"] += 1
        assert answer["allowed"] or answer["status"]["code"] in (400, 403), answer
        if "patch" in answer and body == json.dumps({"request": request}).encode():
            results["patched"] += 1
            await check_patch(served, answer, request)
    print(f"{REVIEWS} reviews, seed {SEED}: {dict(sorted(results.items()))}")
    assert min(results[name] for name in ("no review", "allowed", "patched", "refused 400")) > REVIEWS / 1000


async def check_patch(served: Any, answer: dict[str, Any], request: dict[str, Any]) -> None:
    """It can be applied, and once is enough."""
    patch = json.loads(base64.b64decode(answer["patch"]))
    after = jsonpatch.apply_patch(request["object"], patch)
    again = {"request": request | {"object": after}}
    second = json.loads(await served.review(json.dumps(again).encode()))["response"]
    assert "patch" not in second, (request, second)
