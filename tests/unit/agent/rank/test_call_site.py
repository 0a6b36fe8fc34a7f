from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType

import pytest

from hangwatch_agent.rank import call_site
from hangwatch_agent.rank.call_site import LIBRARY, PACKAGE, USER, CallSites

TORCH = "/venv/lib/python3.11/site-packages/torch"


@pytest.fixture
def sites() -> CallSites:
    sites = CallSites()
    sites._torch = TORCH + os.sep
    return sites


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (TORCH + "/nn/modules/module.py", LIBRARY),
        ("/venv/lib/python3.11/site-packages/tqdm/std.py", PACKAGE),
        (os.__file__, LIBRARY),
        (call_site.__file__, LIBRARY),
        ("<frozen importlib._bootstrap>", LIBRARY),
        ("/home/me/train.py", USER),
        ("<stdin>", USER),
    ],
)
def test_whose_file_it_is(sites: CallSites, file: str, kind: int) -> None:
    assert sites.kind(file) == kind


def chain(*files: str) -> FrameType:
    """The frame of a function in `files[0]`, called from one in `files[1]`, and so on; this file is outermost."""
    inner = "import sys\ndef call():\n    return sys._getframe()\n"
    scope: dict[str, object] = {}
    exec(compile(inner, files[0], "exec"), scope)  # noqa: S102
    for file in files[1:]:
        before, scope = scope["call"], {}
        scope["before"] = before
        exec(compile("def call():\n    return before()\n", file, "exec"), scope)  # noqa: S102
    found = scope["call"]()  # type: ignore[operator]
    assert isinstance(found, FrameType)
    return found


def test_the_users_line_behind_torch_and_packages(sites: CallSites) -> None:
    frame = chain(TORCH + "/a.py", TORCH + "/b.py", "/venv/lib/site-packages/tqdm/std.py", "/home/me/train.py")
    user, through = sites.user_frame(frame)
    assert user is not None
    assert through is not None
    assert (user.f_code.co_filename, through.f_code.co_filename) == ("/home/me/train.py", TORCH + "/b.py")
    assert sites.where(frame) == ("/home/me/train.py", 2, "call")


def test_a_package_is_the_user_where_there_is_no_other(sites: CallSites) -> None:
    outside = sites.kind(__file__)
    sites._kinds = dict.fromkeys(_files(sys._getframe()), LIBRARY) | {__file__: LIBRARY}
    assert outside == USER
    where = sites.where(chain(TORCH + "/a.py", "/venv/lib/site-packages/trainer/loop.py"))
    assert where is not None
    assert where[0] == "/venv/lib/site-packages/trainer/loop.py"


def _files(frame: FrameType | None) -> list[str]:
    return [] if frame is None else [frame.f_code.co_filename, *_files(frame.f_back)]


def helper() -> tuple[call_site.CallPath, list[str]]:
    frame = sys._getframe()
    return call_site.path_of(frame), [function for _, _, function in call_site.described_path(frame)]


def test_a_call_path_distinguishes_callers_of_one_helper() -> None:
    found = {helper()[0] for _ in range(3)}
    assert len(found) == 1
    assert helper()[0] != helper()[0], "two calls on one line are two places"
    assert helper()[1][:2] == ["helper", "test_a_call_path_distinguishes_callers_of_one_helper"]


def test_a_deep_path_is_cut_off() -> None:
    def deep(depth: int) -> tuple[call_site.CallPath, list[str]]:
        return deep(depth - 1) if depth else helper()

    path, functions = deep(300)
    assert len(path) == 2 * call_site.MOST_FRAMES
    assert len(functions) == call_site.MOST_FRAMES
    assert len(call_site.codes_of(sys._getframe())) <= call_site.MOST_FRAMES


class Asked:
    """Gives the place of the loop over it, as it is found while it is asked."""

    def __init__(self, sites: CallSites) -> None:
        self.sites = sites

    def __iter__(self) -> Asked:
        return self

    def __next__(self) -> call_site.Place | None:
        return self.sites.consumer(sys._getframe(1))


def passed_on(items: Iterable[call_site.Place | None]) -> Iterator[call_site.Place | None]:
    yield from (item for item in items)


def test_the_line_that_iterates_is_that_of_the_loop_and_of_no_wrapper(sites: CallSites) -> None:
    for wrapped in (Asked(sites), passed_on(Asked(sites)), passed_on(passed_on(Asked(sites)))):
        for where in wrapped:
            assert where is not None
            assert where[2] == "test_the_line_that_iterates_is_that_of_the_loop_and_of_no_wrapper"
            break
    assert sites.consumer(None) is None


def test_a_generator_that_no_code_of_the_user_asks_is_where_it_iterates(sites: CallSites) -> None:
    def steps() -> Iterator[call_site.Place | None]:
        yield from (where for where in Asked(sites))

    assert next(steps()) is not None
