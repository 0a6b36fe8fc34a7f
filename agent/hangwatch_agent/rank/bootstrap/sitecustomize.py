"""Arms the probe in every Python process below `hangwatch run`, then runs the user's own sitecustomize.

Runs at every interpreter start, in pip and in shell helpers too: it imports nothing but what Python has imported
anyway. The probe itself comes when torch does, or with an uncaught exception of a rank.

Whatever Python the job starts comes by here, so this file is written in what 2.7 and all of 3 have in common. Where
hangwatch does not run (before 3.11), nothing is armed; the user's own sitecustomize runs in any case.
"""

import os
import sys

TYPE_CHECKING = False  # typing is not imported here
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments, as Python 2 has it

RUNS_HERE = sys.version_info >= (3, 11)
FOLDERS = [__file__.rsplit("/", depth)[0] for depth in (4, 5)]  # an installed hangwatch; a checkout


class Hangwatch(object):  # noqa: UP004 - Python 2
    """Finds the hangwatch that this file belongs to, in an interpreter that has none installed. Last in line."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name in ("hangwatch", "hangwatch_agent"):
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(name, FOLDERS)
        return None


class Arming(object):  # noqa: UP004 - Python 2
    """Waits for torch, or for the end of a rank that never came so far."""

    def __init__(self, environment):
        # type: (Any) -> None
        self.environment = environment
        self.excepthook = sys.excepthook
        sys.meta_path.append(Hangwatch)
        sys.meta_path.insert(0, self)
        if environment.get("RANK", "").isdigit():
            sys.excepthook = self.failed
            self.first_at_exit()

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name == "torch" and self in sys.meta_path:
            self.arm()
            for finder in sys.meta_path:  # the probe's own finder is in front now
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def failed(self, kind, error, traceback):
        # type: (Any, Any, Any) -> None
        if self in sys.meta_path:
            self.arm()
        hook = sys.excepthook if sys.excepthook != self.failed else self.excepthook
        hook(kind, error, traceback)

    def arm(self):
        # type: () -> None
        """Never raises: a hangwatch that cannot be imported here leaves the process as it is."""
        sys.meta_path.remove(self)
        if sys.excepthook == self.failed:
            sys.excepthook = self.excepthook
        try:
            from pathlib import Path

            from hangwatch.settings import Settings
            from hangwatch_agent.rank import probe

            settings = Settings.load()
            if settings.enabled:
                probe.arm(settings, Path(settings.run_dir))
        except Exception as error:
            if sys.stderr is not None:
                sys.stderr.write("hangwatch: not watching this process: %s: %s\n" % (type(error).__name__, error))  # noqa: UP031

    def first_at_exit(self):
        # type: () -> None
        """What is registered first runs last: the end of the interpreter's exit callbacks."""
        import atexit

        atexit.register(self.finalizing)

    @staticmethod
    def finalizing():
        # type: () -> None
        probe = sys.modules.get("hangwatch_agent.rank.probe")
        try:
            if probe is not None and probe.current() is not None:
                probe.current().ended()
        except Exception:
            pass  # Python would print it as an error of the program's, and nothing is left to watch


def run_users_own():
    # type: () -> None
    """The sitecustomize that would have been imported without us; its errors are site's to report, as always."""
    here = __file__.rsplit("/", 1)[0]
    path = [folder for folder in sys.path if folder.rstrip("/") != here]
    if sys.version_info[0] == 2:  # noqa: UP036
        run_users_own_python_2(path)
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


def run_users_own_python_2(path):
    # type: (list[str]) -> None
    """The same with the import system of Python 2."""
    import imp  # type: ignore[import-not-found,unused-ignore]

    try:
        file, name, description = imp.find_module("sitecustomize", path)
    except ImportError:
        return
    del sys.modules["sitecustomize"]  # load_module would run it as a reload of ours
    imp.load_module("sitecustomize", file, name, description)  # type: ignore[arg-type,unused-ignore]


if RUNS_HERE and os.environ.get("HANGWATCH_RUN_DIR") and os.environ.get("HANGWATCH_ENABLED", "1") != "0":
    Arming(os.environ)
run_users_own()
