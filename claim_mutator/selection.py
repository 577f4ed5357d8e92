"""HAMi's annotations on a Pod → which cards it may have, in CEL. Pure.

The expressions never raise, whatever attributes a device has or lacks: an error in one would stop the Pod's
scheduling on every node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from claim_mutator.cluster import Card
from claim_mutator.metadata import MODE, NO_USE_TYPE, NO_USE_UUID, USE_TYPE, USE_UUID
from claim_mutator.names import DRIVER
from claim_mutator.refusal import Problem, annotation

_LONGEST_EXPRESSION = 10 * 1024  # bytes: the API's limit


@dataclass(frozen=True)
class Selection:
    """`selectors` are CEL expressions that all have to hold for a card.

    cards, instances: whether shares of whole cards are wanted, and MIG instances. A Pod that says
    nothing gets cards: an instance is given as a whole, and who wants one says so.
    """

    selectors: tuple[str, ...] = ()
    cards: bool = True
    instances: bool = False
    uuids: tuple[str, ...] = ()
    """One of them, where there are any."""
    types: tuple[str, ...] = ()
    """Part of the product's name, one of them."""
    problems: tuple[Problem, ...] = ()
    not_uuids: tuple[str, ...] = ()
    not_types: tuple[str, ...] = ()

    def takes(self, card: Card) -> bool:
        """As the expressions do, of a whole card."""
        return (
            (not self.uuids or card.uuid in self.uuids)
            and card.uuid not in self.not_uuids
            and (not self.types or any(matches(card.product, term) for term in self.types))
            and not any(matches(card.product, term) for term in self.not_types)
        )


def read(annotations: Mapping[str, str]) -> Selection:
    """Never raises: what can't be honoured is in `problems`."""
    mode = annotations.get(MODE, "").strip()
    # A card's mode has to be a part of the value, so that `mig,hami-core` means either.
    cards, instances = not mode or "hami-core" in mode, "mig" in mode
    problems = []
    if not cards and not instances:
        problems.append(_problem(MODE, mode, "is no mode that cards have here: write hami-core or mig"))
    selectors = []
    for key, exclude in ((USE_UUID, False), (NO_USE_UUID, True)):
        if terms := _terms(annotations.get(key)):
            selectors.append((key, _of_uuids(terms, exclude=exclude, instances=instances)))
    for key, exclude in ((USE_TYPE, False), (NO_USE_TYPE, True)):
        if terms := _terms(annotations.get(key)):
            selectors.append((key, _of_types(terms, exclude=exclude)))
    for key, selector in selectors:
        if len(selector.encode()) > _LONGEST_EXPRESSION:
            problems.append(_problem(key, annotations[key][:40] + "…", "is too long: list fewer cards"))
    return Selection(
        tuple(selector for _, selector in selectors),
        cards,
        instances,
        tuple(_terms(annotations.get(USE_UUID))),
        tuple(_terms(annotations.get(USE_TYPE))),
        tuple(problems),
        tuple(_terms(annotations.get(NO_USE_UUID))),
        tuple(_terms(annotations.get(NO_USE_TYPE))),
    )


def shown(product: str) -> str:
    """HAMi shows types as NVIDIA-<product>, and people copy them from there. Lower case."""
    return f"nvidia-{_lower(product)}"


@lru_cache(maxsize=1024)
def matches(product: str, term: str) -> bool:
    """As the CEL expression does: a part of the name, in whatever case."""
    return bool(product) and _lower(term) in shown(product)


def _of_uuids(terms: list[str], *, exclude: bool, instances: bool) -> str:
    """An instance is meant by its own UUID, and by its card's."""
    listed = f"[{', '.join(map(cel_string, terms))}]"
    attributes = [attribute("uuid"), *([attribute("parentUUID")] if instances else [])]
    found = " || ".join(f"has({each}) && {each} in {listed}" for each in attributes)
    return f"!({found})" if exclude else found


def _of_types(terms: list[str], *, exclude: bool) -> str:
    product = attribute("productName")
    name = f'("nvidia-" + {product}.lowerAscii())'
    found = " || ".join(f"{name}.contains({cel_string(_lower(term))})" for term in terms)
    expression = f"has({product}) && ({found})"
    return f"!({expression})" if exclude else expression


def attribute(name: str) -> str:
    return f"device.attributes[{cel_string(DRIVER)}].{name}"


def _problem(key: str, value: str, reason: str) -> Problem:
    return Problem(annotation(key), f"annotation {key}: {value} {reason}")


def _terms(value: str | None) -> list[str]:
    return [term.strip() for term in (value or "").split(",") if term.strip()]


def _lower(text: str) -> str:
    """As CEL's lowerAscii: other letters stay."""
    return "".join(char.lower() if char.isascii() else char for char in text)


def cel_string(text: str) -> str:
    """A JSON string is a CEL string, as long as it has no surrogate pairs."""
    return json.dumps(text, ensure_ascii=False)
