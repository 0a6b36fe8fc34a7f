"""What a condition of the user's asks for, by its source. A hint, and never proof.

Ranks that part at a condition have answered it differently. A condition on the rank does so on purpose. One on counters
or settings, or on a value that was reduced before, is the same everywhere. A check that data is there, or finite, is
meant to hold always. What is left compares or asks for a value of the rank's own: that decides.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hangwatch.source.guards import asks_rank
from hangwatch.source.syntax import CLOCKS, DRAWS, FILES, called, is_added_to, within

Asks = Literal["rank", "value", "check", "alike"]

_ORDER: tuple[Asks, ...] = ("rank", "value", "check", "alike")  # of a condition with several parts
_FEW = 2  # items: fewer are too few for a norm over the batch, for example
_DEPTH = 5  # assignments that are followed back from a name

_COMMUNICATES = re.compile(
    r"^(all_?reduce|reduce|broadcast|all_?gather|gather|sync|synchroni[sz]e|reduced|pmean|psum|mean_across)"
    r"|_?(all_?reduced?|broadcast|all_?gather|across_ranks|across_processes|reduce_mean|reduce_tensor)"
)
_TO_ONE_RANK = frozenset({"reduce", "gather", "gather_object"})  # of torch: only `dst` gets the result
_TORCHS = re.compile(r"^(torch\.)?(dist|distributed|c10d|distributed_c10d)$")
_SETTINGS = re.compile(
    r"^(self\.)?(args?|cfg|config|conf|opts?|hparams?|hp|params|flags|settings|options)$", re.IGNORECASE
)
_COUNTS = re.compile(
    r"(^|_)(step|steps|epochs?|iter|iters|iteration|iterations|batch_idx|batch_index|every|interval|freq\w*|period"
    r"|warmup|training|sanity_checking|validating|evaluating|testing|predicting|max_\w+|num_\w+|n_\w+)($|_)",
    re.IGNORECASE,
)
_INDEX = re.compile(r"(^|_)idx$", re.IGNORECASE)  # of a turn, where it is given; computed here, often one of the data
_CHECKS = frozenset(
    {
        "isnan",
        "isfinite",
        "isinf",
        "any",
        "all",
        "numel",
        "isinstance",
        "issubclass",
        "hasattr",
        "callable",
        "is_tensor",
    }
)
_OF_ALL = frozenset({"any", "all"})
_SIZES = frozenset({"len", "numel", "size", "shape", "sum", "count"})
_PLAIN = frozenset(
    {"bool", "float", "int", "abs", "round", "max", "min", "item", "sum", "mean", "detach", "cpu", "tolist"}
)
_OF_CHANCE = CLOCKS | DRAWS
_VERDICTS = re.compile(
    r"^(is|should|need|needs|must|do|want|wants)_|improved|better|best|stop|save|retry|redo|converged|trigger|expired"
    r"|request|preempt|interrupt|terminat|signal|flag"
)


def asks(test: ast.AST, scope: ast.AST, tree: ast.Module) -> Asks:
    """What `test`, a condition in the function `scope` of the module `tree`, asks for."""
    return "rank" if asks_rank(test, tree) else _Reader(scope, tree).asks(test)


def communicates(name: str) -> bool:
    """A function with that name sends something to other ranks, as names go."""
    return _COMMUNICATES.search(name) is not None or name == "barrier"


def counts(test: ast.AST) -> bool:
    """`test` asks for something modulo a number, as what comes every so many turns does."""
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))


@dataclass(frozen=True)
class _Reader:
    scope: ast.AST
    tree: ast.Module

    def asks(self, test: ast.AST, depth: int = 0) -> Asks:
        if isinstance(test, ast.BoolOp):
            found = [self.asks(part, depth) for part in test.values]
            return next(kind for kind in _ORDER if kind in found)
        if isinstance(test, ast.UnaryOp):
            return self.asks(test.operand, depth)
        if asks_rank(test, self.tree):
            return "rank"
        if self._alike(test, depth):
            return "alike"
        if isinstance(test, ast.Compare):
            return "check" if _is_check(test) else "value"
        return self._of_call(test, depth) if isinstance(test, ast.Call) else self._of_name(test, depth)

    def _of_call(self, test: ast.Call, depth: int) -> Asks:
        name = called(test)
        inner = test.args[0] if test.args else getattr(test.func, "value", None)
        if name in _OF_ALL and (made := self._made(inner.id) if isinstance(inner, ast.Name) else inner) is not None:
            return "value" if _is_threshold(made) else "check"
        if name in _CHECKS:
            return "check"
        if name in _PLAIN:
            return self.asks(inner, depth) if inner is not None else "check"
        return "value"

    def _of_name(self, test: ast.AST, depth: int) -> Asks:
        """The truth of a name: what it was made from says more; else a collection's, which asks whether it is empty."""
        name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
        made = self._made(name) if isinstance(test, ast.Name) else None
        if isinstance(made, ast.Compare | ast.BoolOp | ast.UnaryOp) and depth < _DEPTH:
            return self.asks(made, depth + 1)
        own = _VERDICTS.search(name) or _is_flag(name, self.tree) or name in map(_name_of, _counters(self.tree))
        return "value" if own else "check"

    # -------------------------------------------------------------- alike on all ranks

    def _alike(self, node: ast.AST, depth: int) -> bool:
        """All that it is computed from is the same on every rank, as far as the source shows."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            return self._alike_name(node, depth)
        if isinstance(node, ast.Attribute):
            return _by_name(node.attr) or self._settings(node) or self._alike(node.value, depth)
        if isinstance(node, ast.Call):
            return self._alike_call(node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and self._is_counter(node.left):
            return self._alike(node.right, depth)  # every so many turns: alike at the same count
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return bool(parts) and all(self._alike(part, depth) for part in parts)

    def _is_counter(self, node: ast.expr) -> bool:
        """Something to which the module adds a constant: `self.n += 1`, or `self.n + 1` where that is counted.

        Also what is kept with a constant added: `n = self.calls[name] = self.calls.get(name, 0) + 1`.
        """
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            return self._is_counter(node.left)
        named = isinstance(node, ast.Name | ast.Attribute)
        kept = isinstance(node, ast.Name) and any(map(_keeps_one_more, self._assignments(node.id)))
        return kept or (named and ast.unparse(node) in map(ast.unparse, _counters(self.tree)))

    def _settings(self, node: ast.Attribute) -> bool:
        return any(
            _SETTINGS.search(ast.unparse(part)) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)
        )

    def _alike_call(self, node: ast.Call, depth: int) -> bool:
        if self._communicates(node):
            return True
        if called(node) in _OF_CHANCE | FILES or (called(node) == "len" and node.args) or self._differs_within(node):
            return False
        data = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not data and self._asks_an_object(node):
            return False
        if isinstance(node.func, ast.Attribute) and (called(node) in _PLAIN or self._computed(node.func.value)):
            data.append(node.func.value)
        return bool(data) and all(self._alike(part, depth) for part in data)

    def _asks_an_object(self, call: ast.Call) -> bool:
        """A method without arguments of an object that this function has made: its state decides, such as a clock."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        made = self._made(owner.id) if isinstance(owner, ast.Name) else None
        return isinstance(made, ast.Call) and called(made)[:1].isupper()

    def _computed(self, node: ast.expr) -> bool:
        """A value that this function has computed or drawn, and no object that it was given or keeps."""
        if isinstance(node, ast.Name):
            loops = (each for each in within(self.scope) if isinstance(each, ast.For))
            return self._is_assigned(node.id) or any(_binds(loop.target, node.id) for loop in loops)
        return not isinstance(node, ast.Attribute)

    def _alike_name(self, node: ast.Name, depth: int) -> bool:
        name = node.id
        if asks_rank(node, self.tree):
            return False
        if _SETTINGS.search(name) or name.isupper() or self._met(node, depth) or self._counts(name):
            return True
        if _by_name(name):
            return not self._is_given_each_turn(name, depth)
        if _INDEX.search(name) and not self._is_assigned(name):
            return True
        made = [*self._all_made(name), *self._added_to(name)] if depth < _DEPTH else []
        return bool(made) and all(self._alike(each, depth + 1) for each in made)

    def _counts(self, name: str) -> bool:
        """The number that `enumerate`, `range` or `itertools.count` gives to each turn of a loop, and nothing else."""
        loops = [each for each in within(self.scope) if isinstance(each, ast.For) and _binds(each.target, name)]
        return bool(loops) and not self._assignments(name) and all(_is_number_of_turn(loop, name) for loop in loops)

    def _made(self, name: str) -> ast.expr | None:
        """What the last assignment to `name` in this function takes; None where there is none, or several targets."""
        return next(reversed(self._all_made(name)), None)

    def _all_made(self, name: str) -> list[ast.expr]:
        """What the assignments to `name` in this function take, in their order."""
        return [node.value for node in self._assignments(name)]

    def _added_to(self, name: str) -> Iterator[ast.expr]:
        """What is added to `name` in this function: `seen += len(batch)` counts what is a rank's own."""
        for node in within(self.scope):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                yield node.value

    def _assignments(self, name: str) -> list[ast.Assign]:
        return [
            node
            for node in within(self.scope)
            if isinstance(node, ast.Assign)
            if any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
        ]

    def _is_given_each_turn(self, name: str, depth: int) -> bool:
        """A call gives it anew in each turn, beside other things: how much of a rank's data there was, no count."""
        loops = [each for each in within(self.scope) if isinstance(each, ast.For | ast.While)]
        made = (node for loop in loops for node in within(loop) if isinstance(node, ast.Assign))
        beside = (
            node for node in made if any(isinstance(each, ast.Tuple) and _binds(each, name) for each in node.targets)
        )
        return depth < _DEPTH and any(
            isinstance(node.value, ast.Call) and not self._alike(node.value, depth + 1) for node in beside
        )

    def _is_assigned(self, name: str) -> bool:
        """In this function, alone or as one of several."""
        assigned = (node for node in within(self.scope) if isinstance(node, ast.Assign))
        return any(_binds(target, name) for node in assigned for target in node.targets)

    def _met(self, node: ast.Name, depth: int) -> bool:
        """A collective has left its result in that name by then: before it, or in an earlier turn of the loop."""
        return depth < _DEPTH and any(
            self._kept(node, call.lineno, depth)
            if call.lineno < node.lineno
            else self._from_last_turn(node, call.lineno)
            for call in self._reductions(node.id)
        )

    def _reductions(self, name: str) -> Iterator[ast.Call]:
        """Collectives that leave their result in `name`: what the call itself gives is unused."""
        for node in within(self.scope):
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call) and _shares(call):
                yield from (call for each in call.args if isinstance(each, ast.Name) and each.id == name)

    def _kept(self, node: ast.Name, since: int, depth: int) -> bool:
        """Nothing else was assigned to the name since that line, but what is computed from it."""
        between = (each.value for each in self._assignments(node.id) if since < each.lineno < node.lineno)
        return all(_uses(value, node.id) and self._alike(value, depth + 1) for value in between)

    def _from_last_turn(self, node: ast.Name, line: int) -> bool:
        """A loop is around both, and the name gets no new value in it before the condition."""
        loops = (each for each in within(self.scope) if isinstance(each, ast.For | ast.While))
        around = (each for each in loops if each.lineno <= node.lineno and line <= (each.end_lineno or 0))
        bound = [loop for loop in within(self.scope) if isinstance(loop, ast.For) and _binds(loop.target, node.id)]
        made = [each.lineno for each in (*self._assignments(node.id), *bound)]
        return any(not any(loop.lineno <= each < node.lineno for each in made) for loop in around)

    def _communicates(self, node: ast.Call) -> bool:
        """A collective, or a function of this module that calls one."""
        if _COMMUNICATES.search(called(node)):
            return _shares(node)
        return any(isinstance(part, ast.Call) and _shares(part) for part in self._parts_of(node))

    def _differs_within(self, node: ast.Call) -> bool:
        """A function of this module that asks for the rank, a clock or a file, whatever it is given."""
        return any(
            called(part) in _OF_CHANCE | FILES if isinstance(part, ast.Call) else asks_rank(part, self.tree)
            for part in self._parts_of(node)
            if isinstance(part, ast.Call | ast.Name | ast.Attribute)
        )

    def _parts_of(self, node: ast.Call) -> Iterator[ast.AST]:
        """The bodies of the functions of this module that have that name, and of methods where `self` is asked."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is not None and not (isinstance(owner, ast.Name) and owner.id == "self"):
            return
        for function in ast.walk(self.tree):
            if isinstance(function, ast.FunctionDef) and function.name == called(node):
                yield from (part for each in function.body for part in ast.walk(each))


def _shares(call: ast.Call) -> bool:
    """A collective that gives its result to every rank: accelerate's `gather` does, torch's own does not."""
    name = called(call)
    if not _COMMUNICATES.search(name):
        return False
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    to_one = any(keyword.arg in ("dst", "group_dst", "root") for keyword in call.keywords)
    return name not in _TO_ONE_RANK or not (to_one or _TORCHS.search(owner))


def _is_flag(name: str, tree: ast.Module) -> bool:
    """The module sets it to true or false somewhere, as the handler of a signal does: it is no data."""
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    flags = (node for node in assigned if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool))
    targets = (target for node in flags for target in node.targets)
    return name in map(_name_of, targets)


def _name_of(target: ast.expr) -> str | None:
    """The bare name, which may be an attribute's."""
    return getattr(target, "attr", getattr(target, "id", None))


def _counters(tree: ast.Module) -> Iterator[ast.expr]:
    """What the module counts: that to which it adds a number somewhere, as in `self.waited += 1`."""
    for each in ast.walk(tree):
        if is_added_to(each) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, int | float):
            yield each.target


def _keeps_one_more(node: ast.Assign) -> bool:
    value = node.value
    kept = [ast.unparse(each.value) for each in node.targets if isinstance(each, ast.Subscript)]
    adds = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(value.right, ast.Constant)
    return adds and any(text in ast.unparse(value) for text in kept)


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target))


def _is_number_of_turn(loop: ast.For, name: str) -> bool:
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
    number = (
        {"enumerate": first, "count": loop.target, "range": _of_range(loop)}.get(called(loop.iter))
        if isinstance(loop.iter, ast.Call)
        else None
    )
    return isinstance(number, ast.Name) and number.id == name


def _of_range(loop: ast.For) -> ast.expr | None:
    """The target of a loop over a range that begins with a constant: where it ends is no matter in a turn of it."""
    given = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    fixed = [*given[:1], *given[2:]] if len(given) > 1 else []
    return loop.target if all(isinstance(each, ast.Constant) for each in fixed) else None


def _uses(value: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(value))


def _by_name(name: str) -> bool:
    return _COUNTS.search(name) is not None


def _is_check(test: ast.Compare) -> bool:
    """Whether something is there, of that kind or not empty; or is no number: `x is None`, `len(x) > 0`, `x != x`."""
    sides = [test.left, *test.comparators]
    if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in test.ops):
        return True
    if len({ast.unparse(side) for side in sides}) == 1:
        return True
    sized = any(isinstance(part, ast.Call) and called(part) in _SIZES for side in sides for part in ast.walk(side))
    sized = sized or any(
        isinstance(part, ast.Attribute) and part.attr == "shape" for side in sides for part in ast.walk(side)
    )
    return sized and any(_is_few(side) for side in sides)


def _is_threshold(test: ast.AST) -> bool:
    """Numbers are compared with a limit: `load > 0.3`. With zero, or for equality, it asks for what there is."""
    if not isinstance(test, ast.Compare) or _is_check(test):
        return False
    zero = any(isinstance(side, ast.Constant) and side.value == 0 for side in (test.left, *test.comparators))
    return not zero and all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in test.ops)


def _is_few(side: ast.expr) -> bool:
    """A size that any batch is meant to have; more is a threshold, which each rank reaches in its own time."""
    return isinstance(side, ast.Constant) and isinstance(side.value, int | float) and side.value <= _FEW
