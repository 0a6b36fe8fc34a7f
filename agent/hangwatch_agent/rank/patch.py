"""Puts another object in the place of an attribute, and exactly the old one back."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patch:
    """Attribute `name` of a class or module, replaced by `replacement` while installed. Idempotent both ways.

    `original` is what the attribute gave before, inherited or not; on removal an inherited one is inherited again.
    Where another library has replaced ours meanwhile, its own stays: taking it out would undo what is not ours.
    """

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self.owner, self.name, self.replacement = owner, name, replacement
        self.original: Any = getattr(owner, name)
        self._own: Any = _ABSENT
        self.installed = False

    def install(self) -> None:
        if self.installed:
            return
        self._own = vars(self.owner).get(self.name, _ABSENT)
        setattr(self.owner, self.name, self.replacement)
        self.installed = True

    def remove(self) -> None:
        if not self.installed:
            return
        self.installed = False
        if vars(self.owner).get(self.name) is not self.replacement:
            return
        if self._own is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._own)


class Patches:
    """Several patches that come and go together."""

    def __init__(self) -> None:
        self._patches: list[Patch] = []

    def put(self, owner: Any, name: str, replacement: Any) -> None:
        patch = Patch(owner, name, replacement)
        patch.install()
        self._patches.append(patch)

    def remove(self) -> None:
        """Take all out again, the last one first."""
        while self._patches:
            self._patches.pop().remove()

    def __iter__(self) -> Any:
        return iter(self._patches)
