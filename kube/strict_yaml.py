"""YAML as people write it, without what goes wrong unseen: a key that is there twice is refused."""

from __future__ import annotations

from typing import Any


class YamlError(Exception):
    """Not YAML, or ambiguous; the message is one line and says where."""


def load(content: bytes) -> Any:
    """Plain values; None for an empty document. Raises YamlError."""
    import yaml  # noqa: PLC0415 - only where there is a file: it costs 3.6 MiB

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for name in names:
                if names.count(name) > 1:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {name!r} is there twice", node.start_mark
                    )
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(content, Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(" ".join(str(error).split())) from error
    except (LookupError, AttributeError) as error:  # PyYAML's answer to `!!bool maybe`
        raise YamlError(f"a value does not fit its tag ({error!r})") from error
