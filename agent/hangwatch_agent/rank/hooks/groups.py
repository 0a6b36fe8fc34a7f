"""init_process_group, new_group and destroy_process_group: which groups were made, in which order, and the call inside
now.

Replaced in the module that defines them and where `torch.distributed` names them again. What is called past us (a name
imported before attach, a group made in another way) is found by `Groups.sync` at the next tick.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from hangwatch.launchers import number
from hangwatch.wire import members
from hangwatch_agent.board import layout as b
from hangwatch_agent.rank import identity
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.hooks.untraced import replacing
from hangwatch_agent.rank.patch import Patches

DEFINED = "torch.distributed.distributed_c10d"
NAMED = "torch.distributed"
MOST_MADE = 128  # calls of new_group that the board lists
POSITIONS = {"world_size": 3, "rank": 4}  # of init_process_group's parameters


class GroupsHook:
    """Phases init, group, ready, destroying and destroyed; the list of groups made.

    `becoming_rank` is called before init_process_group: a process that calls it is a rank, whatever it was before.
    """

    def __init__(self, context: Context, becoming_rank: Callable[[], None]) -> None:
        self._context = context
        self._becoming_rank = becoming_rank
        self.before_init: Callable[[Any], None] = lambda backend: None  # told the backend before torch makes it
        self._patches = Patches()
        self._installed = False
        self.reset()

    def reset(self) -> None:
        """Forget the groups made: this process has a new board."""
        self._made: list[list[Any]] = []
        self._count = 0
        self._address: dict[str, str] = {}  # of the rendezvous, where init_process_group was given it
        self.ready = False

    @property
    def seen(self) -> bool:
        """Whether this process has begun to make a process group."""
        return bool(self._made)

    def install(self) -> None:
        defined = sys.modules.get(DEFINED)
        if self._installed or defined is None:
            return
        self._installed = True
        named = sys.modules.get(NAMED)
        for name, replacement in (
            ("init_process_group", self._init),
            ("_new_group_with_tag", self._new_group),
            ("split_group", self._split_group),
            ("destroy_process_group", self._destroy),
        ):
            original = getattr(defined, name, None)
            if original is None:
                continue
            wrapped = replacement(original)
            self._patches.put(defined, name, wrapped)
            if getattr(named, name, None) is original:
                self._patches.put(named, name, wrapped)
        # DeviceMesh has imported split_group by name.
        mesh = sys.modules.get("torch.distributed.device_mesh")
        if mesh is not None and hasattr(mesh, "split_group"):
            self._patches.put(mesh, "split_group", defined.split_group)

    def remove(self) -> None:
        self._patches.remove()
        self._installed = False

    def look(self) -> None:
        """Enrol what is there: at attach, and at every tick."""
        groups, words = self._context.groups, self._context.board.words
        changed = groups.sync()
        if not changed:
            return
        alive = any(group.alive for group in groups.slots)
        if alive and not self.ready:
            self._initialised()
        elif not alive and self.ready and words[b.W_PHASE] < b.DESTROYING:
            self.ready = False
            self._context.steps.phase(b.DESTROYED)

    # ------------------------------------------------------------ replacements

    def _init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @replacing(original, "init_process_group")
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            self._guarded(self._entering, args, kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._guarded(self._context.steps.phase, b.START)
                raise
            self._guarded(self._entered_world)
            return result

        return init_process_group

    def _new_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @replacing(original, "_new_group_with_tag")
        def _new_group_with_tag(*args: Any, **kwargs: Any) -> Any:
            asked = args[0] if args else kwargs.get("ranks")
            return self._making(asked, original, args, kwargs)

        return _new_group_with_tag

    def _split_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @replacing(original, "split_group")
        def split_group(*args: Any, **kwargs: Any) -> Any:
            splits = args[1] if len(args) > 1 else kwargs.get("split_ranks")
            return self._making([rank for ranks in splits or () for rank in ranks], original, args, kwargs)

        return split_group

    def _destroy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @replacing(original, "destroy_process_group")
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            group = args[0] if args else kwargs.get("group")
            whole = group is None or group is _world_group()
            before = self._context.board.words[b.W_PHASE]
            if whole:
                self._guarded(self._context.steps.phase, b.DESTROYING)
            try:
                return original(*args, **kwargs)
            finally:
                self._guarded(self._destroyed, whole, before)

        return destroy_process_group

    def _guarded(self, body: Callable[..., None], *args: Any) -> None:
        if not self._installed:
            return  # a module imported our name and keeps it after `remove`
        try:
            body(*args)
        except Exception as error:
            self._context.guard.swallow(error)

    # ------------------------------------------------------------ the world

    def _entering(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._becoming_rank()
        self.before_init(kwargs.get("backend", args[0] if args else None))
        given = {name: kwargs.get(name, args[at] if len(args) > at else None) for name, at in POSITIONS.items()}
        self._address = identity.rendezvous(kwargs.get("init_method", args[1] if len(args) > 1 else None))
        self._identify({name: value for name, value in given.items() if type(value) is int and value >= 0})
        self._begin_group([], "0")
        self._context.steps.phase(b.INIT)

    def _entered_world(self) -> None:
        self._context.groups.sync()
        self._initialised()
        if self._made and not self._made[-1][3]:
            self._made[-1][1] = self._world_text()
            self._end_group("0")

    def _initialised(self) -> None:
        self.ready = True
        dist = sys.modules[DEFINED]
        known = {"rank": int(dist.get_rank()), "world_size": int(dist.get_world_size())}
        self._identify(known)
        if self._context.board.words[b.W_PHASE] in (b.START, b.INIT):
            self._context.steps.phase(b.READY)

    def _identify(self, known: dict[str, int]) -> None:
        """Record the rank's identity as known by now; the script may have set the environment just before."""
        context = self._context
        context.identity |= {
            "local_rank": number(os.environ, "LOCAL_RANK"),
            "environment": identity.distributed(os.environ) | self._address,
        }
        for name in ("rank", "world_size"):
            found = number(os.environ, name.upper())
            if found is not None:
                context.identity[name] = found
        context.identity |= known
        context.board.write("identity", context.identity)

    def _world_text(self) -> str:
        group = next((group for group in self._context.groups.slots if group.alive), None)
        return members.text(group.ranks) if group else ""

    # ------------------------------------------------------------ further groups

    def _making(self, asked: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        words = self._context.board.words
        before = words[b.W_PHASE]
        self._guarded(self._entering_group, asked)
        try:
            group = original(*args, **kwargs)
        except BaseException:
            self._guarded(self._context.steps.phase, before)
            raise
        self._guarded(self._made_group, group, before)
        return group

    def _entering_group(self, asked: Any) -> None:
        world = getattr(sys.modules[DEFINED], "_world", None)
        ranks = sorted(int(rank) for rank in asked) if asked else None
        self._begin_group(ranks, str(getattr(world, "group_count", "")))
        self._context.steps.phase(b.GROUP)

    def _made_group(self, group: Any, before: int) -> None:
        self._context.groups.sync()
        self._end_group(str(getattr(group, "group_name", "")))
        self._context.steps.phase(before)

    def _begin_group(self, ranks: list[int] | None, name: str) -> None:
        text = self._world_text() if ranks is None else members.text(ranks)
        where = self._context.sites.where(sys._getframe(3))
        self._made.append([self._count, text, name, False, where])
        self._count += 1
        self._write_made()

    def _write_made(self) -> None:
        """The first and the last of many matter most: those in the middle make room."""
        while len(self._made) > MOST_MADE or len(json.dumps(self._made)) > b.BLOBS["groups_made"]:
            del self._made[len(self._made) // 2]
        self._context.board.write("groups_made", self._made)

    def _end_group(self, name: str) -> None:
        if not self._made:
            return
        made = self._made[-1]
        made[3] = True
        made[2] = name or made[2]
        self._write_made()

    def _destroyed(self, whole: bool, before: int) -> None:
        self._context.groups.sync()
        if whole and not any(group.alive for group in self._context.groups.slots):
            self.ready = False
            self._context.steps.phase(b.DESTROYED)
        else:
            self._context.steps.phase(before)


def _world_group() -> Any:
    return getattr(getattr(sys.modules.get(DEFINED), "GroupMember", None), "WORLD", None)
