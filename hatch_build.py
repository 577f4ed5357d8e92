"""Builds what is generated: gRPC code from protos/, the interposer, and its cffi binding.

Also a command (`python hatch_build.py`): the same, into the source tree, for work on a checkout.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


def generate_protos(root: Path = ROOT) -> None:
    """protos/<package>/<package>.proto → modules beside it. Upstream calls all api.proto, which clashes."""
    import grpc_tools
    from grpc_tools import protoc

    include = Path(grpc_tools.__file__).parent / "_proto"
    for proto in sorted((root / "protos").glob("*/*.proto")):
        name = str(proto.relative_to(root))
        outputs = [f"--{kind}={root}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
        if protoc.main(["protoc", f"-I{root}", f"-I{include}", *outputs, name]) != 0:
            raise RuntimeError(f"protoc failed on {name}")


def generate_binding(root: Path = ROOT) -> None:
    """interposer/include/*.h → interposer/_abi.py (out-of-line: no parser at run time)."""
    import cffi

    builder = cffi.FFI()
    builder.set_source("interposer._abi", None)
    for name in ("tessera_abi.h", "tessera_access.h"):
        header = (root / "interposer" / "include" / name).read_text()
        marked = re.search(r"/\* cffi: begin \*/(.*)/\* cffi: end \*/", header, re.DOTALL)
        if marked is None:
            raise RuntimeError(f"{name} has lost its cffi marks")
        builder.cdef(marked.group(1))
    builder.emit_python_code(str(root / "interposer" / "_abi.py"))


def build_interposer(root: Path = ROOT) -> None:
    command = ["make", "--no-print-directory", "-C", str(root / "interposer"), f"PYTHON={sys.executable}"]
    subprocess.run(command, check=True)


class GeneratedSources(BuildHookInterface[Any]):
    """hatchling's build hook: a wheel for this platform that holds everything generated."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        if self.target_name == "sdist":
            return
        root = Path(self.root)
        generate_protos(root)
        generate_binding(root)
        build_interposer(root)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{platform.machine()}"


if __name__ == "__main__":
    generate_protos()
    generate_binding()
    build_interposer()
