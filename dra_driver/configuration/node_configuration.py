"""NodeConfiguration, a YAML file that an administrator writes for all nodes → the rules of one node. Pure.

    apiVersion: gpu.tessera.dev/v1alpha1
    kind: NodeConfiguration
    splitCount: 10                  # sharers of a card
    memoryScaling: 1.5              # published memory = this times the card's
    coreScaling: 1
    reservedMemory: 512Mi           # of each whole card, given to nobody
    unifiedMemory: 96Gi             # of cards that have no memory of their own but the host's
    excludedCards: [{model: "Quadro P4*"}, {uuid: GPU-…}, {index: 3}]
    placement: binpack              # or spread
    interposition: preload          # or shim
    memoryOverflow: spill           # or refuse; of no meaning where memoryScaling is at most 1
    taintEffects: {gpu.tessera.dev/xid: NoExecute}
    overrides:
      - nodes: {name: node-a}       # and, or instead: glob, labelSelector; all that are given must match
        splitCount: 4

Whatever is left out has the value of the agent's settings, or its default. Fields outside `overrides` go
before that, and every override whose `nodes` match goes before all above it: of two that set one field, the
later wins. A list replaces a list as a whole; taint effects are fields of their own, key by key.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, TypeVar

from dra_driver.cards.rules import CardMatch, Effect, Interposition, MemoryOverflow, Placement, Rules
from dra_driver.configuration.file_fields import Fields
from dra_driver.names import CONFIG_API_VERSION, DRIVER, MEBIBYTE, SHARES_OF_A_CARD
from kube import strict_yaml
from kube.quantity import QuantityError, parse_quantity
from kube.settings import SettingsError

KIND = "NodeConfiguration"
TAINT_KEYS = tuple(f"{DRIVER}/{name}" for name in ("device-plugin", "lost", "unmonitored", "xid"))
_LEAST_SCALING, _MOST_SCALING = Decimal("0.01"), Decimal(100)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_SCALARS = (
    "splitCount",
    "memoryScaling",
    "coreScaling",
    "reservedMemory",
    "unifiedMemory",
    "excludedCards",
    "placement",
    "interposition",
    "memoryOverflow",
    "taintEffects",
)
_HEADER = ("apiVersion", "kind")
_Kind = TypeVar("_Kind", bound=enum.Enum)


class NodeConfigurationError(SettingsError):
    """A file that can't be used; a line for each mistake: file, field, value, what to write instead."""


@dataclass(frozen=True)
class Expression:
    """One of a label selector's matchExpressions."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True)
class LabelSelector:
    """As everywhere in Kubernetes: all of it must match."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            expression.matches(labels) for expression in self.match_expressions
        )


@dataclass(frozen=True)
class Nodes:
    """Which nodes an override is for."""

    name: str | None = None
    glob: str | None = None
    label_selector: LabelSelector | None = None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return (
            (self.name is None or self.name == name)
            and (self.glob is None or fnmatchcase(name, self.glob))
            and (self.label_selector is None or self.label_selector.matches(labels))
        )


@dataclass(frozen=True)
class Layer:
    """What the file, or one of its overrides, sets; None is left out."""

    split_count: int | None = None
    memory_scaling: Fraction | None = None
    core_scaling: Fraction | None = None
    reserved_memory: int | None = None
    unified_memory: int | None = None
    excluded_cards: tuple[CardMatch, ...] | None = None
    placement: Placement | None = None
    interposition: Interposition | None = None
    memory_overflow: MemoryOverflow | None = None
    taint_effects: Mapping[str, Effect] | None = None


@dataclass(frozen=True)
class Override:
    """What goes before all above it, for some nodes."""

    nodes: Nodes
    layer: Layer


@dataclass(frozen=True)
class NodeConfiguration:
    """The whole file."""

    layer: Layer
    overrides: tuple[Override, ...] = ()

    @property
    def needs_labels(self) -> bool:
        """Whether the Node object's labels decide anything."""
        return any(override.nodes.label_selector is not None for override in self.overrides)


@dataclass(frozen=True)
class Resolved:
    """`applied`: the indexes of the overrides that matched."""

    rules: Rules
    applied: tuple[int, ...]


def resolve(
    configuration: NodeConfiguration, name: str, labels: Mapping[str, str], defaults: Rules
) -> Resolved:
    """What holds for the node of that name and labels. `defaults`: the settings'."""
    applied = [
        index
        for index, override in enumerate(configuration.overrides)
        if override.nodes.matches(name, labels)
    ]
    rules = defaults
    for layer in (configuration.layer, *(configuration.overrides[index].layer for index in applied)):
        rules = _over(rules, layer)
    return Resolved(rules, tuple(applied))


def _over(rules: Rules, layer: Layer) -> Rules:
    scales = replace(
        rules.scales,
        **_given(
            split_count=layer.split_count,
            memory_scaling=layer.memory_scaling,
            core_scaling=layer.core_scaling,
            reserved_memory=layer.reserved_memory,
        ),
    )
    return replace(
        rules,
        scales=scales,
        taint_effects={**rules.taint_effects, **(layer.taint_effects or {})},
        **_given(
            unified_memory=layer.unified_memory,
            excluded=layer.excluded_cards,
            placement=layer.placement,
            interposition=layer.interposition,
            memory_overflow=layer.memory_overflow,
        ),
    )


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def parse(content: bytes, file: str) -> NodeConfiguration:
    """Raises NodeConfigurationError with every mistake. `file`: how to call it."""
    document = _document(content, file)
    kind = (document.get("apiVersion"), document.get("kind"))
    if kind != (CONFIG_API_VERSION, KIND):
        problem = f"{file}: apiVersion {kind[0]!r}, kind {kind[1]!r} is not known here"
        raise NodeConfigurationError([f"{problem}: write apiVersion: {CONFIG_API_VERSION}, kind: {KIND}"])
    mistakes: list[str] = []
    fields = Fields(document, "", (*_HEADER, *_SCALARS, "overrides"), mistakes)
    configuration = NodeConfiguration(_layer(fields), fields.each("overrides", _override) or ())
    if mistakes:
        raise NodeConfigurationError([f"{file}: {mistake}" for mistake in mistakes])
    return configuration


def _document(content: bytes, file: str) -> dict[Any, Any]:
    try:
        document = strict_yaml.load(content)
    except strict_yaml.YamlError as error:
        raise NodeConfigurationError([f"{file}: is not YAML: {error}"]) from error
    if not isinstance(document, dict):
        what = "is empty" if document is None else f"is a {type(document).__name__}, not a mapping"
        raise NodeConfigurationError([f"{file}: {what}: begin it with apiVersion: {CONFIG_API_VERSION}"])
    return document


def _layer(fields: Fields) -> Layer:
    return Layer(
        split_count=fields.read("splitCount", _split_count),
        memory_scaling=fields.read("memoryScaling", _scaling),
        core_scaling=fields.read("coreScaling", _scaling),
        reserved_memory=fields.read("reservedMemory", _bytes),
        unified_memory=fields.read("unifiedMemory", _enough),
        excluded_cards=fields.each("excludedCards", _excluded),
        placement=fields.read("placement", _one_of(Placement)),
        interposition=fields.read("interposition", _one_of(Interposition)),
        memory_overflow=fields.read("memoryOverflow", _one_of(MemoryOverflow)),
        taint_effects=fields.read("taintEffects", _effects),
    )


def _override(given: Any, path: str, mistakes: list[str]) -> Override | None:
    fields = Fields(given, path, ("nodes", *_SCALARS), mistakes)
    layer, nodes = _layer(fields), fields.inner("nodes", _nodes)
    if isinstance(given, Mapping):
        fields.needs("nodes")
    return Override(nodes, layer) if nodes is not None else None


def _nodes(given: Any, path: str, mistakes: list[str]) -> Nodes | None:
    fields = Fields(given, path, ("name", "glob", "labelSelector"), mistakes)
    nodes = Nodes(
        fields.read("name", _text), fields.read("glob", _text), fields.inner("labelSelector", _selector)
    )
    if nodes == Nodes():
        fields.refuse("chooses no nodes: write name, glob or labelSelector")
    return nodes


def _selector(given: Any, path: str, mistakes: list[str]) -> LabelSelector | None:
    fields = Fields(given, path, ("matchLabels", "matchExpressions"), mistakes)
    labels = fields.read("matchLabels", _labels) or {}
    expressions = fields.each("matchExpressions", _expression) or ()
    if not labels and not expressions:
        fields.refuse("is empty: write matchLabels or matchExpressions, or use glob: '*' for all nodes")
    return LabelSelector(labels, expressions)


def _expression(given: Any, path: str, mistakes: list[str]) -> Expression | None:
    fields = Fields(given, path, ("key", "operator", "values"), mistakes)
    key, operator = fields.read("key", _text), fields.read("operator", _operator)
    values = fields.read("values", _texts) or ()
    if isinstance(given, Mapping):
        fields.needs("key")
        fields.needs("operator")
    if key is None or operator is None:
        return None
    if (operator in ("In", "NotIn")) != bool(values):
        need = "no values with Exists and DoesNotExist, at least one with In and NotIn"
        fields.refuse(f"{operator} with values {list(values)!r}: write {need}")
    return Expression(key, operator, values)


def _excluded(given: Any, path: str, mistakes: list[str]) -> CardMatch | None:
    fields = Fields(given, path, ("uuid", "index", "model"), mistakes)
    match = CardMatch(fields.read("uuid", _text), fields.read("index", _index), fields.read("model", _text))
    if [match.uuid, match.index, match.model].count(None) != 2:
        fields.refuse("write exactly one of uuid, index and model for each card")
        return None
    return match


def _split_count(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= SHARES_OF_A_CARD:
        raise ValueError(f"can't be {value!r}: write a whole number from 1 to {SHARES_OF_A_CARD}, such as 10")
    return value


def _scaling(value: Any) -> Fraction:
    try:
        number = Decimal(str(value)) if isinstance(value, int | float | str) else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if isinstance(value, bool) or not number.is_finite() or not _LEAST_SCALING <= number <= _MOST_SCALING:
        raise ValueError(
            f"can't be {value!r}: write a number from {_LEAST_SCALING} to {_MOST_SCALING}, such as 1.5"
        )
    return Fraction(number)


def _bytes(value: Any) -> int:
    try:
        is_one = isinstance(value, int | str) and not isinstance(value, bool)
        amount = parse_quantity(value) if is_one else Fraction(-1)
    except QuantityError as error:
        raise ValueError(f"can't be {value!r}: {error}") from error
    if amount < 0 or amount.denominator != 1:
        raise ValueError(f"can't be {value!r}: write a whole number of bytes such as 512Mi, or 0")
    return int(amount)


def _enough(value: Any) -> int:
    number = _bytes(value)
    if number < MEBIBYTE:
        raise ValueError(f"can't be {number} bytes: write at least 1Mi")
    return number


def _one_of(kinds: type[_Kind]) -> Callable[[Any], _Kind]:
    def reading(value: Any) -> _Kind:
        for kind in kinds:
            if kind.value == value:
                return kind
        words = ", ".join(repr(kind.value) for kind in kinds)
        raise ValueError(f"can't be {value!r}: write one of {words}")

    return reading


def _effects(value: Any) -> dict[str, Effect]:
    if not isinstance(value, Mapping):
        raise ValueError(  # noqa: TRY004 - as all readings
            f"can't be {value!r}: write taint keys with effects, such as {TAINT_KEYS[-1]}: NoExecute"
        )
    found = {}
    for key, text in value.items():
        if key not in TAINT_KEYS:
            raise ValueError(f"there is no taint {key!r}: write one of {', '.join(TAINT_KEYS)}")
        # YAML's own none is spelled otherwise, so None is a text here.
        effect = next((effect for effect in Effect if effect.value == text), None)
        if effect is None:
            raise ValueError(
                f"{key} can't be {text!r}: write one of {', '.join(effect.value for effect in Effect)}"
            )
        found[key] = effect
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"can't be {value!r}: write a text, a number in quotes")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"can't be {value!r}: write a list of texts, numbers in quotes")
    return tuple(value)


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) for item in value.items() for text in item
    ):
        raise ValueError(f"can't be {value!r}: write labels with their values, numbers in quotes")
    return dict(value)


def _operator(value: Any) -> str:
    if value not in _OPERATORS:
        raise ValueError(f"can't be {value!r}: write one of {', '.join(map(repr, _OPERATORS))}")
    return str(value)


def _index(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"can't be {value!r}: write a whole number of at least 0")
    return value
