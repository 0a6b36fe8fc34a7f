"""The ways past a call in a turn of the loop, from its source. The call is marked with `# here`, each frame's line."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.model import Bypass, Frame
from hangwatch.source.hints import hooks_of, rank_check_of, ways_past_call

FILE = "/home/ann/train.py"


def ways(source: str, hooks: int | None = None) -> list[tuple[int, str, bool]]:
    """(line, text, inner) of each way; `# here` marks the frames, the innermost being the first one marked."""
    text = textwrap.dedent(source).strip("\n")
    marked = [number for number, line in enumerate(text.splitlines(), 1) if "# here" in line]
    frames = tuple(Frame(FILE, line, "f") for line in marked)
    return [(way.where.line, way.text, way.inner) for way in ways_past_call(frames, lambda file: text, hooks)]


def test_a_continue_before_the_call_with_its_condition() -> None:
    source = """
    for batch in loader:
        loss = model(batch)
        if not torch.isfinite(loss):
            print("nan")
            continue
        loss.backward()  # here
        if late: continue
    """
    assert ways(source) == [(5, "if not torch.isfinite(loss): continue", True)]


def test_a_condition_around_the_call() -> None:
    source = """
    while True:
        if len(batch) > 0:
            with amp():
                loss.backward()  # here
        else:
            dropped += 1
    """
    assert ways(source) == [(2, "if len(batch) > 0", True)]


def test_an_except_clause_that_goes_on_and_one_that_does_not() -> None:
    source = """
    for batch in loader:
        try:
            loss = model(batch)
            loss.backward()  # here
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        except ValueError:
            raise
        except KeyError:
            break
        except StopIteration:
            pass
        except TypeError:
            sys.exit(1)
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
    """
    assert ways(source) == [(5, "except torch.OutOfMemoryError", True), (15, "except RuntimeError", True)]


def test_a_handler_before_the_call() -> None:
    source = """
    for batch in loader:
        try:
            batch = move(batch)
        except RuntimeError:
            continue
        all_reduce(batch)  # here
    """
    assert ways(source) == [(5, "except RuntimeError: continue", True)]


def test_suppressed_errors() -> None:
    source = """
    for batch in loader:
        with suppress(RuntimeError):
            all_reduce(batch)  # here
    """
    assert ways(source) == [(2, "with suppress(RuntimeError)", True)]


MANAGERS = {
    "returns-true": ("class guard:\n    def __exit__(self, kind, error, trace):\n        return True", True),
    "returns-a-check": ("class guard:\n    def __exit__(self, kind, *rest):\n        return kind is ValueError", True),
    "returns-nothing": ("class guard:\n    def __exit__(self, *error):\n        self.close()", False),
    "returns-false": ("class guard:\n    def __exit__(self, *error):\n        return False", False),
    "asks-another": ("class guard:\n    def __exit__(self, *e):\n        return self.stack.__exit__(*e)", False),
    "a-generator": (
        "@contextlib.contextmanager\ndef guard():\n    try:\n        yield\n    except Exception:\n        log()",
        True,
    ),
    "raises-again": (
        "@contextmanager\ndef guard():\n    try:\n        yield\n    except Exception:\n        log()\n        raise",
        False,
    ),
    "cleans-up": ("@contextmanager\ndef guard():\n    try:\n        yield\n    finally:\n        close()", False),
}


@pytest.mark.parametrize(("manager", "swallows"), MANAGERS.values(), ids=MANAGERS)
def test_a_manager_of_the_module_that_lets_no_error_through(manager: str, swallows: bool) -> None:
    source = f"{manager}\nfor batch in loader:\n    with guard():\n        all_reduce(batch)  # here"
    assert [text for _, text, _ in ways(source)] == (["with guard()"] if swallows else [])


def test_functions_on_the_way_may_return_before() -> None:
    source = """
    def reduce(loss):
        if loss is None:
            return
        for hook in hooks:
            if hook.off: return
        all_reduce(loss)  # here

    def train():
        for batch in loader:
            if batch is None: continue
            reduce(model(batch))  # here
    """
    assert ways(source) == [
        (3, "if loss is None: return", True),
        (5, "if hook.off: return", True),
        (10, "if batch is None: continue", True),
    ]


def test_what_stands_in_other_loops_or_functions_is_no_way() -> None:
    source = """
    for epoch in range(3):
        if epoch == 1: continue
        for batch in loader:
            for part in batch:
                if not part: continue
            def later():
                return 1
            if stop: break
            loss.backward()  # here
    """
    assert ways(source) == [(2, "if epoch == 1: continue", False)]


def test_a_loop_that_is_part_of_a_step_is_passed_as_a_whole() -> None:
    source = """
    for batch in loader:
        if skip(batch): continue
        loss.backward()
        for parameter in parameters:
            all_reduce(parameter.grad)  # here
    """
    assert ways(source) == [(2, "if skip(batch): continue", False)]


def test_the_otherwise_of_a_condition() -> None:
    source = """
    for batch in loader:
        if good(batch):
            pass
        else:
            continue
        all_reduce(batch)  # here
    """
    assert ways(source) == [(5, "if not good(batch): continue", True)]


@pytest.mark.parametrize("source", ["all_reduce(x)  # here", "for x in y:\n    all_reduce(x)  # here", "def (  # here"])
def test_where_there_is_none(source: str) -> None:
    assert ways(source) == []


def test_a_file_that_cannot_be_read() -> None:
    assert ways_past_call((Frame(FILE, 3, "f"),), lambda file: None) == ()


HOOK = """
class Model:
    def training_step(self, batch):
        if not batch:
            return None
        return self.net(batch)  # here

if __name__ == "__main__":
    if resume:
        trainer.fit(Model())  # here
"""


def test_the_loop_of_a_trainer_does_not_hold_what_calls_the_trainer() -> None:
    assert ways(HOOK, hooks=1) == [(4, "if not batch: return", True)]


def test_a_hook_that_nothing_passes_leaves_nothing_to_say() -> None:
    assert ways(HOOK.replace("        if not batch:\n            return None\n", ""), hooks=1) == []


def test_a_loop_of_the_users_around_the_package_is_the_turn() -> None:
    source = """
    def update(self, batch):
        self.reduce(batch)  # here

    for batch in loader:
        if skip(batch):
            continue
        metric(batch)  # here
    """
    assert ways(source, hooks=1) == [(6, "if skip(batch): continue", True)]


def test_frames_that_a_package_has_called() -> None:
    user, package, torch = (
        Frame(FILE, 1, "f"),
        Frame("/v/site-packages/p/t.py", 1, "g"),
        Frame("/v/site-packages/torch/a.py", 1, "h"),
    )
    assert hooks_of((torch, package, user, torch, user)) is None
    assert hooks_of((torch, package, user, torch, user, package, package, user)) == 2


@pytest.mark.parametrize(("loop", "hooks"), [("while steps:", 2), ("for step in range(9):", 2), ("with scope():", 1)])
def test_all_that_a_packages_loop_has_called_is_in_its_turn(loop: str, hooks: int) -> None:
    """An override calls the trainer's function, which calls a callback."""
    user = Frame(FILE, 1, "evaluate")
    calls, trains = Frame("/v/site-packages/p/calls.py", 2, "call"), Frame("/v/site-packages/p/train.py", 3, "train")
    texts = {
        calls.file: "def call(callbacks):\n    for each in callbacks: each()\n",
        trains.file: f"def train():\n    {loop}\n        evaluate()\n",
    }
    assert hooks_of((user, calls, user, trains, user), texts.get) == hooks


def test_that_a_module_is_the_program_is_no_way_past_what_it_runs() -> None:
    assert (
        ways(
            """
        if __name__ == "__main__":
            dist.barrier()  # here
        """
        )
        == []
    )


def test_an_object_s_own_state_decides_where_it_is_asked_without_arguments() -> None:
    text = "def main():\n    tick = Throttle(1.0)\n    if tick.ready():\n        log()\n"
    frames = (Frame(FILE, 4, "main"),)
    assert [way.asks for way in ways_past_call(frames, lambda file: text)] == ["value"]


@pytest.mark.parametrize(
    ("made", "asks"),
    [
        ("value = reduce_mean(loss)", "alike"),
        ("value = accelerator.gather(loss)", "alike"),
        ("value = dist.gather(loss, dst=0)", "value"),  # torch gives the result to one rank
        ("value = loss + 0.0\n    torch.distributed.reduce(value, 0)", "value"),
        ("value = loss + 0.0\n    reduce(value, dst=0)", "value"),
        ("value = loss + 0.0\n    dist.all_reduce(value)", "alike"),
        ("value = 1.0", "alike"),
        ("value = 1.0\n    if bad:\n        value = local(loss)", "value"),  # every assignment counts, not the last one
        ("value = local(loss)\n    if bad:\n        value = 1.0", "value"),
        ("value = score(torch.randn(64, 6))", "value"),
        ("value = os.path.exists(SNAPSHOT)", "value"),  # each node has disks of its own
        ("value = Path(SNAPSHOT).is_file()", "value"),
        ('value = f"scratch{RANK}"', "value"),
        ("value = SNAPSHOT", "alike"),
    ],
)
def test_a_condition_is_alike_on_all_ranks_where_all_that_it_was_made_from_is(made: str, asks: str) -> None:
    text = f"def main(loss, bad):\n    {made}\n    if keeper.improved(value):\n        save()\n"
    frames = (Frame(FILE, text.count("\n"), "main"),)
    assert [way.asks for way in ways_past_call(frames, lambda file: text)] == [asks]


@pytest.mark.parametrize(
    ("source", "asks"),
    [
        ("def f(part):\n    if not part.isfinite():\n        return\n    dist.all_reduce(part)  # here", "check"),
        (
            "for x in y:\n    loss = f(x)\n    if loss > 9:\n        continue\n    dist.all_reduce(loss)  # here",
            "value",
        ),
        ("loss = f(x)\ndist.all_reduce(loss)\nfor x in y:\n    if loss > 9:\n        g(x)  # here", "alike"),
        ("dist.all_reduce(loss)\nloss = loss / 8\nfor x in y:\n    if loss > 9:\n        g(x)  # here", "alike"),
        ("dist.all_reduce(loss)\nloss = f(x)\nfor x in y:\n    if loss > 9:\n        g(x)  # here", "value"),
        ("for u in y:\n    part, steps = rollout(model)\n    if steps > 9:\n        send(part)  # here", "value"),
        ("part, steps = load(PATH)\nfor u in y:\n    if steps > 9:\n        send(part)  # here", "alike"),
        ("for u in y:\n    part, steps = load(cfg)\n    if steps > 9:\n        send(part)  # here", "alike"),
        ("for steps, part in y:\n    if steps > 9:\n        send(part)  # here", "alike"),
        ("while on:\n    if bad > 0:\n        g()  # here\n    bad = f()\n    dist.all_reduce(bad)", "alike"),
    ],
)
def test_what_is_reduced_behind_a_condition_is_not_alike_there(source: str, asks: str) -> None:
    line = 1 + source[: source.index("# here")].count("\n")
    found = ways_past_call((Frame(FILE, line, "f" if source.startswith("def") else "<module>"),), lambda file: source)
    assert [way.asks for way in found] == [asks]


@pytest.mark.parametrize(
    ("counted", "asks"),
    [
        ("n = self.calls[name] = self.calls.get(name, 0) + 1", "alike"),  # as often as the function was called
        ("n = self.calls.get(name, 0) + 1", "check"),
        ("n = self.rows[name] + 1", "check"),
    ],
)
def test_a_number_that_is_kept_with_one_more_is_a_counter(counted: str, asks: str) -> None:
    source = f"def hook(self, name):\n    {counted}\n    if n % 8:\n        return\n    dist.all_reduce(stat)"
    found = ways_past_call((Frame(FILE, 5, "hook"),), lambda file: source)
    assert [(way.asks, way.counts) for way in found] == [(asks, asks == "alike")]


RANK_ZERO = """\
def rank_zero_only(function):
    def wrapped(*args):
        if rank == 0:
            return function(*args)
    return wrapped
"""


def test_a_package_that_asks_for_the_rank_ahead_of_the_users_function() -> None:
    """GIVEN a decorator of a package between the user's lines THEN it is told, as a reason to doubt and no more."""
    package = "/venv/lib/python3.12/site-packages/fit/rank_zero.py"
    user, calls = Frame("/home/ann/train.py", 9, "log"), Frame("/home/ann/train.py", 40, "main")
    asking, plain = Frame(package, 4, "wrapped"), Frame(package, 5, "rank_zero_only")
    found = rank_check_of((user, asking, calls), {package: RANK_ZERO}.get)
    assert found == Bypass(asking, "a check of the rank", inner=False, asks="package")
    assert rank_check_of((user, plain, calls), {package: RANK_ZERO}.get) is None
    assert rank_check_of((asking, user, calls), {package: RANK_ZERO}.get) is None  # below the user's call, not ahead
    assert rank_check_of((user, asking, calls), lambda file: None) is None


def test_ways_past_a_whole_inner_loop_are_told_beside_those_of_its_turns() -> None:
    source = """
    def average(model):
        for p in model.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)  # here

    for x, mask in samples:
        if not mask.any():
            continue
        average(model)  # here
    """
    assert ways(source) == [(3, "if p.grad is not None", True), (8, "if not mask.any(): continue", False)]


def given(source: str) -> list[tuple[int, str] | None]:
    """Where each way's condition got its value, and what stands there."""
    text = textwrap.dedent(source).strip("\n")
    marked = [number for number, line in enumerate(text.splitlines(), 1) if "# here" in line]
    found = ways_past_call(tuple(Frame(FILE, line, "f") for line in marked), lambda file: text)
    return [(way.given.line, way.given_text) if way.given is not None else None for way in found]


def test_a_condition_that_is_a_name_is_told_with_what_gave_it_its_value() -> None:
    source = """
    for batch in loader:
        update = random.random() < chance
        if not update:
            continue
        critic(batch).backward()  # here
    """
    assert given(source) == [(2, "update = random.random() < chance")]


@pytest.mark.parametrize(
    "made",
    [
        "ready = True",
        "ready = loss.isnan()\n    ready |= late",
        "ready, rest = split(batch)",
        "ready = loss.isnan()\n    dist.all_reduce(ready)",
        "if first:\n        ready = loss.isnan()\n    else:\n        ready = late()",
        "for ready in checks(): pass\n    ready = late()",
    ],
)
def test_a_name_with_several_values_or_a_changed_one_has_no_such_line(made: str) -> None:
    assert given(f"for batch in loader:\n    {made}\n    if not ready: continue\n    backward()  # here") == [None]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("if patience.waited and acc.check_trigger():  # here", "patience.waited and acc.check_trigger()"),
        ("found = gather(x) if ready else x  # here", "gather(x) if ready else x"),
        ("stop = late or gather(x)  # here", "late or gather(x)"),
        ("if late and stop and gather(x) and True:  # here", "late and stop and gather(x) and True"),
    ],
)
def test_what_comes_first_in_an_expression_decides_about_the_call_behind_it(call: str, text: str) -> None:
    block = f"{call}\n        pass" if call.startswith("if") else call
    assert ways(f"for epoch in range(40):\n    {block}") == [(2, text, True)]


@pytest.mark.parametrize(
    "call",
    [
        "if gather(x) and ready: pass",
        "if loss.item() > 3 and gather(x): pass",
        "if gather(x): pass",
        "gather(loss if loss is not None else zeros(1))",
        "total = reduce(loss, scale=fast and get_scale())",
        "found = gather(x) if wide else reduce(x)",
        "assert gather(x) is None, text or str(x)",
    ],
)
def test_an_expression_whose_first_part_does_not_decide_shows_no_way_past_a_call(call: str) -> None:
    assert ways(f"for epoch in range(40):\n    {call}  # here") == []


def test_an_expression_too_deep_for_python_is_passed_over() -> None:
    deep = " + ".join(["a"] * 2000)
    assert ways(f"for x in y:\n    if {deep}: continue\n    step()  # here") == []


def test_a_check_of_the_rank_leads_past_the_call_however_far_out_it_stands() -> None:
    source = """
    def sample(model, step):
        if step > limit():
            return
        if step % every or not is_main(): return
        for token in range(length):
            if blank(token): continue
            for block in model.blocks:
                x = block(x)  # here
    """
    found = ways(source)
    assert (4, "if step % every or not is_main(): return", False) in found
    assert (6, "if blank(token): continue", False) in found
    assert not [way for way in found if way[0] == 2]  # what is no check of the rank says nothing of so many turns


@pytest.mark.parametrize("decorator", ["cache.invalidate", "wraps(cached)", "timed(name=cache)"])
def test_a_decorator_that_only_speaks_of_a_cache_remembers_nothing(decorator: str) -> None:
    assert (
        ways(f"""
    @{decorator}
    def scale(lang):
        dist.all_reduce(t)  # here
    for lang, x in batches:
        scale(lang)  # here
    """)
        == []
    )


@pytest.mark.parametrize("cache", ["lru_cache(maxsize=None)", "cache", "functools.lru_cache", "cached_property"])
def test_a_function_that_remembers_its_results_is_not_called_again(cache: str) -> None:
    source = f"""
    @{cache}
    def scale(lang):
        dist.all_reduce(t)  # here
    for lang, x in batches:
        scale(lang)  # here
    """
    assert ways(source) == [(1, f"@{cache}", True)]
    (way,) = ways_past_call((Frame(FILE, 3, "scale"),), lambda file: textwrap.dedent(source).strip("\n"))
    assert way.asks == "value"


def test_what_a_wrapper_asks_is_told_at_the_decorator_of_the_function_that_it_wraps() -> None:
    source = """
    class Logger:
        @on_main(verbose=True)
        def log(self, value):
            return mean(value)  # here
    def on_main(verbose):
        def wrap(function):
            def inner(*arguments):
                if rank() == 0:
                    return function(*arguments)  # here
            return inner
        return wrap
    """
    text = textwrap.dedent(source).strip("\n")
    (way,) = ways_past_call((Frame(FILE, 4, "log"), Frame(FILE, 9, "inner")), lambda file: text)
    assert (way.where, way.text, way.asks) == (Frame(FILE, 2, "log"), "@on_main(verbose=True)", "rank")
    assert (way.given, way.given_text) == (Frame(FILE, 8, "inner"), "if rank() == 0")


@pytest.mark.parametrize(
    ("decorator", "calls"), [("timed", "function()"), ("on_main", "log()"), ("on_main(wrap)", "self.function()")]
)
def test_a_wrapper_of_another_name_or_a_call_of_another_function_is_no_decorator_s(decorator: str, calls: str) -> None:
    source = f"""
    @{decorator}
    def log():
        mean(value)  # here
    def on_main(function):
        def inner():
            if ready:
                {calls}  # here
        return inner
    """
    assert ways(source) == [(6, "if ready", True)]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("if step % 5 == 4: dist.barrier()", ["if step % 5 == 4"]),
        ("if dist.get_rank() == 0: dist.barrier()", ["if dist.get_rank() == 0"]),
        ("if dist.barrier(): pass", []),
        ("if gathered(x): log(x)", []),
    ],
    ids=["in its body", "of a rank", "in its condition", "perhaps in its condition"],
)
def test_a_condition_on_the_line_of_the_call(statement: str, told: list[str]) -> None:
    source = f"def main():\n    for step in range(9):\n        {statement}\ndef gathered(x):\n    dist.gather(x)\n"
    frames = (Frame("/home/ann/train.py", 3, "main"),)
    assert [way.text for way in ways_past_call(frames, lambda file: source)] == told
