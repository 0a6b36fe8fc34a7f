"""Puts the probe of `hangwatch doctor` in the place of a rank: by exec, so that the launcher keeps its child.

Where the environment says which rank this is, nothing of the user's has run by then. Elsewhere (torch.multiprocessing,
MPI without MASTER_ADDR) the script runs up to its `init_process_group`, whose arguments say it, or up to its first
backward: no training happens under `hangwatch doctor`.

Written in what Python 2.7 and all of 3 have in common, for whatever Python the job starts comes by here.
"""

import os
import sys

TYPE_CHECKING = False  # typing is not imported here
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments, as Python 2 has it

HERE = __file__.rsplit("/", 1)[0]
FOLDERS = [HERE.rsplit("/", depth)[0] for depth in (3, 4)]  # an installed hangwatch; a checkout
# Their modules launch too: python -m accelerate.commands.launch
LAUNCHING_PACKAGES = ("torch.distributed.", "accelerate.", "deepspeed.")
# For each: what the launcher calls rank, world size, rank on its host, ranks on its host, host.
KNOWN = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ""),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NODEID"),
)


def launchers():
    # type: () -> Any
    """The names that hangwatch.launchers reads too; none where hangwatch itself is not found."""
    for folder in FOLDERS:
        try:
            with open(folder + "/hangwatch/launchers.txt") as names:  # noqa: PTH123 - Python 2
                return names.read().split()
        except EnvironmentError:  # noqa: UP024 - Python 2
            pass
    return []


def is_launcher(command):
    # type: (Any) -> bool
    names = launchers()
    for word in command[:4]:
        if word.rsplit("/", 1)[-1] in names or word.startswith(LAUNCHING_PACKAGES):
            return True
    return "hangwatch.doctor.ranks_here" in command[:4]


def known_rank(environment):
    # type: (Any) -> dict[str, str] | None
    """The rank's variables under torch's own names, or None where the launcher has set none."""
    for names in KNOWN:
        of_the_batch_script = names[0] == "SLURM_PROCID" and environment.get("SLURM_STEP_ID", "") == environment.get(
            "HANGWATCH_DOCTOR_STEP", ""
        )
        if environment.get(names[0], "").isdigit() and not of_the_batch_script:
            return dict((own, environment[name]) for own, name in zip(KNOWN[0], names) if environment.get(name))  # noqa: B905, C402
    return None


def take_over(rank):
    # type: (Any) -> None
    """Become the probe of this rank. Does not return."""
    environment = dict(os.environ)
    environment.update(rank)
    path = [part for part in environment.get("PYTHONPATH", "").split(":") if part and part.rstrip("/") != HERE]
    environment["PYTHONPATH"] = ":".join(path + FOLDERS)
    environment["HANGWATCH_DOCTOR_ARGV"] = "\n".join(getattr(sys, "orig_argv", sys.argv))
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.stderr.write("hangwatch: doctor needs Python 3.11 in the ranks, this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
        sys.stderr.flush()
        os._exit(0)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "hangwatch_agent.doctor"], environment)


def wait_for_process_group():
    # type: () -> None
    """Take over where the script says which rank it is; end it where it begins to train without having said so."""
    sys.path += [folder for folder in FOLDERS if folder not in sys.path]
    from hangwatch_agent.rank.import_watch import ImportWatch

    def imported(name):
        # type: (str) -> None
        module = sys.modules[name]  # type: Any
        if name == "torch.autograd":
            module.backward = trains
        else:
            module.init_process_group = initialises

    ImportWatch(("torch.distributed.distributed_c10d", "torch.autograd"), imported).install()


def initialises(*args, **kwargs):
    # type: (*Any, **Any) -> None
    """Stands in for `torch.distributed.init_process_group`."""
    names = ("backend", "init_method", "timeout", "world_size", "rank")
    given = dict(zip(names, args))  # noqa: B905
    given.update(kwargs)
    known = dict(os.environ)
    known.update(known_rank(os.environ) or {})
    place = str(given.get("init_method") or "")
    if place.startswith("tcp://"):
        known["MASTER_ADDR"], _, known["MASTER_PORT"] = place[6:].partition("/")[0].rpartition(":")
    for name, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE")):
        if isinstance(given.get(name), int) and given[name] >= 0:
            known[variable] = str(given[name])
    wanted = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not known.get(name)]
    if missing:
        stop("init_process_group was called without %s: doctor cannot tell which rank this is" % ", ".join(missing))  # noqa: UP031
    take_over(dict((name, known[name]) for name in wanted if known.get(name)))  # noqa: C402


def trains(*args, **kwargs):
    # type: (*Any, **Any) -> None
    """Stands in for `torch.autograd.backward`."""
    stop("the script trains without init_process_group: there is no job of several ranks to check")


def stop(why):
    # type: (str) -> None
    sys.stderr.write("hangwatch: %s\n" % why)  # noqa: UP031
    sys.stderr.flush()
    os._exit(0)


def run_users_own():
    # type: () -> None
    """The sitecustomize that would have been imported without us."""
    if sys.version_info < (3, 4):  # noqa: UP036
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [folder for folder in sys.path if folder.rstrip("/") != HERE])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


def begin():
    # type: () -> None
    if not os.environ.get("HANGWATCH_DOCTOR_TOKEN") or is_launcher(getattr(sys, "orig_argv", sys.argv)):
        return
    rank = known_rank(os.environ)
    if rank is not None and os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT"):
        take_over(rank)
    elif sys.version_info >= (3, 11):  # noqa: UP036
        wait_for_process_group()


begin()
run_users_own()
