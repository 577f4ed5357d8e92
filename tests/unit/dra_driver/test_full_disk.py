"""Every single write of Prepare fails in turn, and every single removal of Unprepare, below the steps."""

from __future__ import annotations

import builtins
import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import RetryableError
from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import A100, RTX_4090
from tests.unit.dra_driver.world import World

REF, OTHER = claim_ref(), claim_ref("other")
WRITES = ("mkdir", "replace", "rename", "chmod")
REMOVALS = ("unlink", "rmdir")


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """With a claim that is prepared, whatever becomes of the next."""
    made = World(tmp_path)
    made.put(claim(OTHER, result(A100, share=9)))
    made.put(claim(REF, result(RTX_4090, "3000Mi"), result(A100, "2Gi", share=2, request="g1")))
    await made.preparer.prepare(OTHER)
    return made


@contextmanager
def failing(number: int, names: tuple[str, ...], error: int) -> Iterator[Callable[[], bool]]:
    """The call of that number fails, counted over all of these functions of `os`; says whether it did."""
    calls = itertools.count()
    has_failed = False

    def wrap(do: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **options: Any) -> Any:
            nonlocal has_failed
            if next(calls) == number:
                has_failed = True
                raise OSError(error, os.strerror(error), str(arguments[0]))
            return do(*arguments, **options)

        return maybe

    real_open = builtins.open

    def maybe_open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "x" in mode or "w" in mode:
            return wrap(real_open)(file, mode, *arguments, **options)
        return real_open(file, mode, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(os, name, wrap(getattr(os, name)))
        if names is WRITES:
            patch.setattr(builtins, "open", maybe_open)
        yield lambda: has_failed


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
async def test_prepare(world: World, error: int) -> None:
    before = world.files()
    for number in itertools.count():
        with failing(number, WRITES, error) as has_failed:
            try:
                await world.preparer.prepare(REF)
            except RetryableError as refusal:
                assert os.strerror(error) in str(refusal)
                assert world.files() == before
                assert set(world.ledger.entries) == {OTHER.uid}
        if not has_failed():
            break
        await world.preparer.prepare(REF)
        await world.preparer.unprepare(REF)
        assert world.files() == before
    assert number > 12  # two entries of the ledger, two grants of two files, a document


@pytest.mark.parametrize("error", [errno.EROFS, errno.EIO])
async def test_prepare_again(world: World, error: int) -> None:
    """Its containers run: nothing that was there is taken away."""
    await world.preparer.prepare(REF)
    world.store.path(REF.uid).chmod(0o600)  # somebody has been at it: so it is made again
    before = world.files()
    for number in itertools.count():
        with failing(number, WRITES, error) as has_failed:
            try:
                await world.preparer.prepare(REF)
            except RetryableError as refusal:
                assert os.strerror(error) in str(refusal)
        assert world.files() == before
        assert set(world.ledger.entries) == {OTHER.uid, REF.uid}
        if not has_failed():
            break
    assert number > 0


@pytest.mark.parametrize("error", [errno.EROFS, errno.EIO])
async def test_unprepare(world: World, error: int) -> None:
    before = world.files()
    for number in itertools.count():
        await world.preparer.prepare(REF)
        with failing(number, REMOVALS, error) as has_failed:
            try:
                await world.preparer.unprepare(REF)
            except RetryableError as refusal:
                assert os.strerror(error) in str(refusal)
                assert REF.uid in world.ledger.entries  # still counted
        await world.preparer.unprepare(REF)
        assert world.files() == before
        if not has_failed():
            break
    assert number > 5
