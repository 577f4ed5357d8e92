"""YAML manifests as people write them: every value with its line, every document with its own text.

What Kubernetes' own reader takes for a string stays one (dates, `22:22`), and a key that is there twice is a
mistake, not a choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import yaml

from claim_mutator.refusal import Pointer


class Unreadable(Exception):  # noqa: N818 - what it is
    """A file, or an option, that can't be understood; the message names the place."""


@dataclass(frozen=True)
class Document:
    """One object of a file. `text` is what stands in the file for it."""

    value: dict[str, Any]
    text: str
    name: str
    _node: yaml.Node

    def place(self, pointer: Pointer = ()) -> str:
        """`FILE:LINE` of a value, or of the innermost thing around it that is there."""
        node, line = self._node, self._node.start_mark.line
        for step in pointer:
            entry = _entry(node, step)
            if entry is None:
                break
            key, node = entry
            line = (key or node).start_mark.line
        return f"{self.name}:{line + 1}"


def read(text: str, name: str) -> list[Document]:
    """Documents with something in them. Raises Unreadable."""
    try:
        return list(_documents(text, name))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise Unreadable(f"{place}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(f"{name}: {error}") from error
    except (LookupError, AttributeError) as error:  # PyYAML's answer to `!!bool maybe`
        raise Unreadable(f"{name}: a value does not fit its tag ({error!r})") from error


def _documents(text: str, name: str) -> Iterator[Document]:
    loader = _Loader(text)
    while loader.check_node():
        node = loader.get_node()
        if node is None:
            return
        _check_keys(node, name, set())
        value = loader.construct_document(node)
        if isinstance(value, dict):
            yield Document(value, _text(text, node), name, node)
        elif value is not None:
            kind = type(value).__name__
            raise Unreadable(f"{name}:{node.start_mark.line + 1}: a document is not an object, but {kind}")


def write(documents: Iterable[Document | dict[str, Any]], stream: TextIO) -> None:
    """A Document as it stands in its file, an object in plain YAML."""
    for document in documents:
        if isinstance(document, Document):
            stream.write(f"---\n{document.text}")
        else:
            yaml.dump(
                document,
                stream,
                _Dumper,
                sort_keys=False,
                allow_unicode=True,
                width=1000,
                explicit_start=True,
            )


class _Loader(yaml.SafeLoader):
    """Without what YAML 1.1 has and Kubernetes has not."""


_FOREIGN = {"tag:yaml.org,2002:timestamp"}
_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(
        r"[-+]?0b[0-1_]+$|[-+]?0[0-7_]+$|[-+]?(?:0|[1-9][0-9_]*)$|[-+]?0x[0-9a-fA-F_]+$"
    ),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?$|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?$"
        r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in found if tag not in _FOREIGN]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """Quotes strings that other YAML readers than PyYAML take for numbers or truth values."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - values that are shared are written out
        return True


_AMBIGUOUS = re.compile(r"[-+.]?[0-9][0-9a-fA-FxXoO_.:+-]*|[yYnN]")


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _AMBIGUOUS.fullmatch(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def _entry(node: yaml.Node, step: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    """Key (of a mapping) and value; of keys from a merge the last is in force."""
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value == str(step):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None


def _check_keys(node: yaml.Node, name: str, seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _check_keys(each, name, seen)
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in keys:
                    raise Unreadable(f"{name}:{key.start_mark.line + 1}: {key.value} is there twice")
                keys.add(key.value)
            _check_keys(value, name, seen)


def _text(text: str, node: yaml.Node) -> str:
    """From its first line to its last, with the comments above it."""
    start, end = node.start_mark.index, node.end_mark.index
    line = text.rfind("\n", 0, start) + 1
    if not text[line:start].strip(" "):
        start = line
        while start and _is_comment(above := text[text.rfind("\n", 0, start - 1) + 1 : start]):
            start -= len(above)
    found = text[start:end]
    return found if found.endswith("\n") else f"{found}\n"


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#") or not line.strip()
