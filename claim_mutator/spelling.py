"""Keys that look like ours and are not: a misspelt limit must not become a whole card."""

from __future__ import annotations

import difflib
import unicodedata

from claim_mutator.names import ResourceNames, Role

_ALIKE = 0.8
_ALIKE_DOMAIN = 0.85
_FOREIGN = ("mig-", "gpu.shared", "gpu.replicas")
_CARDS = "gpu"
"""Resources of NVIDIA's own device plugin; the last where ours has another name, to live beside it."""


def intended(key: str, names: ResourceNames, *, beside_ours: bool) -> str | None:
    """The name of ours that `key` was meant to be, or None if it is somebody else's business.

    beside_ours: the container also has keys of ours; then every `…/gpu…` and `…/vgpu…` is taken for one.
    """
    if key in names.roles:
        return None
    domain, slash, name = key.partition("/")
    if not slash:
        return None
    plain, domain = _plain(name), _plain(domain)
    if domain not in names.domains:
        return _in_a_misspelt_domain(domain, plain, names) if beside_ours else None
    known = {own.partition("/")[2]: own for own in names.roles if own.partition("/")[0] == domain}
    if plain in known:
        return known[plain]  # other case, another kind of hyphen
    if plain.startswith(_FOREIGN) or (plain == _CARDS and not beside_ours):
        return None
    if alike := difflib.get_close_matches(plain, known, n=1, cutoff=_ALIKE):
        return known[alike[0]]
    if plain.startswith(("gpumem", "gpu-mem", "gpu.mem")):
        share = any(word in plain for word in ("perc", "ratio", "%"))
        return names.preferred(Role.PERCENTAGE if share else Role.MEMORY)
    if plain.startswith(("gpucore", "gpu-core", "gpu.core")):
        return names.preferred(Role.CORES)
    if beside_ours and plain.startswith(("gpu", "vgpu")):
        if plain.endswith(("age", "percent")):
            return names.preferred(Role.PERCENTAGE)
        nearest = difflib.get_close_matches(plain, known, n=1, cutoff=0)
        return names.preferred(Role.COUNT) if plain.startswith("vgpu") else known[nearest[0]]
    return None


def _in_a_misspelt_domain(domain: str, name: str, names: ResourceNames) -> str | None:
    """`nvdia.com/gpumem`; somebody else's domain is no more alike than `hami.nvidia.com`."""
    alike = difflib.get_close_matches(domain, names.domains, n=1, cutoff=_ALIKE_DOMAIN)
    meant = f"{alike[0]}/{name}" if alike else ""
    return meant if meant in names.roles else None


def _plain(text: str) -> str:
    """Lower case, every kind of dash or minus a hyphen, no accents of width."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(
        "-" if char in "_\N{MINUS SIGN}" or unicodedata.category(char) == "Pd" else char for char in folded
    ).strip()
