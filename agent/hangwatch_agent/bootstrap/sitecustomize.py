"""Arms the probe in every Python process below `hangwatch run`, then runs the user's own sitecustomize.

Runs at every interpreter start, in pip and in shell helpers too: it imports nothing but what Python has imported
anyway. The probe itself comes when torch does, or with an uncaught exception of a rank.
"""

import sys

TYPE_CHECKING = False  # typing is not imported here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType

FOLDERS = [__file__.rsplit("/", depth)[0] for depth in (3, 4)]  # an installed hangwatch; a checkout


class Hangwatch:
    """Finds the hangwatch that this file belongs to, in an interpreter that has none installed. Last in line."""

    @staticmethod
    def find_spec(
        name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name in ("hangwatch", "hangwatch_agent"):
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(name, FOLDERS)
        return None


class Arming:
    """Waits for torch, or for the end of a rank that never came so far."""

    def __init__(self, environment: "Mapping[str, str]") -> None:
        self.environment = environment
        self.excepthook = sys.excepthook
        sys.meta_path.append(Hangwatch)
        sys.meta_path.insert(0, self)
        if environment.get("RANK", "").isdigit():
            sys.excepthook = self.failed
            self.first_at_exit()

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name == "torch" and self in sys.meta_path:
            self.arm()
            for finder in sys.meta_path:  # the probe's own finder is in front now
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def failed(self, kind: type[BaseException], error: BaseException, traceback: "TracebackType | None") -> None:
        if self in sys.meta_path:
            self.arm()
        hook = sys.excepthook if sys.excepthook != self.failed else self.excepthook
        hook(kind, error, traceback)

    def arm(self) -> None:
        """Never raises: a hangwatch that cannot be imported here leaves the process as it is."""
        sys.meta_path.remove(self)
        if sys.excepthook == self.failed:
            sys.excepthook = self.excepthook
        try:
            from pathlib import Path

            from hangwatch.settings import Settings
            from hangwatch_agent import probe

            settings = Settings.load()
            if settings.enabled:
                probe.arm(settings, Path(settings.run_dir))
        except Exception as error:
            sys.stderr.write("hangwatch: not watching this process: %s: %s\n" % (type(error).__name__, error))  # noqa: UP031

    def first_at_exit(self) -> None:
        """What is registered first runs last: the end of the interpreter's exit callbacks."""
        import atexit

        atexit.register(self.finalizing)

    @staticmethod
    def finalizing() -> None:
        probe = sys.modules.get("hangwatch_agent.probe")
        if probe is not None and probe.current() is not None:
            probe.current().lifecycle.finalizing()


def run_users_own() -> None:
    """The sitecustomize that would have been imported without us; its errors are site's to report, as always."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = __file__.rsplit("/", 1)[0]
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path.rstrip("/") != here])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


import os  # noqa: E402 - the interpreter has imported it long ago

if os.environ.get("HANGWATCH_RUN_DIR") and os.environ.get("HANGWATCH_ENABLED", "1") != "0":
    Arming(os.environ)
run_users_own()
