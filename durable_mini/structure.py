"""A workflow, and the fingerprint of its durable calls.

Guarantees: the hash covers kind, literal name and nesting in branches and loops of every durable
call that the source shows, in helpers too that the context is handed to; comments, formatting and
what a step does don't count, and one source has one hash on every supported Python. Where the
context leaves the reader's sight the list of calls says so. Leaves to others: what the source
doesn't show (replay compares that).
"""

import ast
import dis
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import update_wrapper
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from durable_mini.codec import check_name
from durable_mini.errors import StructureUnreadableError

__all__ = ["Structure", "Workflow", "structure", "workflow"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_NAMED = frozenset({"step", "effect", "wait_signal", "compensate"})
_UNNAMED = ("now", "random", "uuid", "sleep", "gather", "child", "patched")
_DURABLE = _NAMED.union(_UNNAMED, ("continue_as_new", "point_of_no_return"))
_FIRST = frozenset({"name", "calls", "workflow"})  # what the first argument may be called
_BRANCHES = ("POP_JUMP", "JUMP_IF", "FOR_ITER", "PUSH_EXC")  # so begin instructions that branch
_READ_ONLY = frozenset({"run_id", "generation", "attempt", "replaying"})

# Nodes of which a part may run more or less often than the node, and the parts that run as often.
_NESTING = (
    *(ast.If, ast.IfExp, ast.Try, ast.TryStar, ast.match_case, ast.BoolOp, ast.For, ast.While),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, _Function),
)
_AS_OFTEN = frozenset({"test", "target", "iter", "generators", "args", "decorator_list"})
_WORDS = {"orelse": "else", "handlers": "except", "finalbody": "finally"}


class Structure(NamedTuple):
    """A workflow's durable calls, readable and in order; their hash (hexadecimal); its patches.

    Of `if ctx.patched("id")` it has the calls of the path that is taken, and no `if`: once a patch
    is taken for good and removed from the code, the structure stays what it was.
    """

    hash: str
    calls: tuple[str, ...]
    patches: tuple[str, ...] = ()


class Workflow:
    """A workflow function under a name and a version; made by `@workflow`, callable like it."""

    def __init__(self, fn: FunctionType, name: str, version: str) -> None:
        self.fn, self.name, self.version = fn, name, version
        self._structures: dict[frozenset[str] | None, Structure] = {}
        self._definitions: dict[CodeType, _Function] = {}  # its own and its helpers', once read
        update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version!r}>"


def workflow(*, version: str = "1", name: str | None = None) -> Callable[[Any], Workflow]:
    """Make a function of a context and an input into a workflow.

    Args:
        version: which version of the workflow this code is; a run goes on with the version that it
            started with.
        name: the workflow's name in the journal; the function's name by default.

    Raises:
        TypeError: it is no plain function, but async, a generator, a method, a partial.
        InvalidNameError: the name or the version can't be stored.
    """

    def decorate(function: Any) -> Workflow:
        label = name if name is not None else getattr(function, "__name__", repr(function))
        check_name(label, "workflow name")
        check_name(version, "workflow version")
        odd = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
        if not isinstance(function, FunctionType) or function.__code__.co_flags & odd:
            raise TypeError(f"workflow {label!r} has to be a plain function with a return")
        return Workflow(function, label, version)

    return decorate


def structure(workflow: Workflow, patches: Iterable[str] | None = None) -> Structure:
    """The durable calls of a workflow as its source shows them, and their hash.

    Read once for each loaded function: what counts is the code that runs, not a file edited since.

    Args:
        workflow: made by `@workflow`.
        patches: the patches that a run knows: its structure is that of the code with these taken,
            and no other. All of them by default, as in a run that starts now.

    Raises:
        StructureUnreadableError: there is no source, it can't be told which function it is, or it
            was edited since it was loaded; or a patch isn't the whole test of an `if`.
    """
    known = None if patches is None else frozenset(patches)
    if known not in workflow._structures:
        reader = _Reader(workflow, workflow.fn, 0, (), known)
        calls = tuple(reader.lines())
        found = tuple(dict.fromkeys(reader.patches))
        workflow._structures[known] = Structure(structure_hash(calls), calls, found)
    return workflow._structures[known]


def structure_hash(calls: tuple[str, ...] | list[str]) -> str:
    """The hash of a list of durable calls."""
    return sha256("\n".join(calls).encode()).hexdigest()[:16]


class _Reader:
    """Reads one function in the order in which it runs; a helper's source gets a reader of its own.

    Args:
        workflow: whose structure it is; it keeps what was read.
        fn: the function, a plain one.
        parameter: which of its parameters is the context (place or name).
        outer: the functions that led here, so that a recursive helper ends.
        taken: the patches whose new path is read; None for all.

    Attributes: `patches` has the ids of the patches it came across.
    """

    def __init__(
        self,
        workflow: Workflow,
        fn: FunctionType,
        parameter: int | str,
        outer: Sequence[CodeType],
        taken: frozenset[str] | None,
    ) -> None:
        self._taken, self.patches = taken, list[str]()
        self._workflow, self._fn, self._outer = workflow, fn, [*outer, fn.__code__]
        read = workflow._definitions
        self._node = read[fn.__code__] = read.get(fn.__code__) or self._definition_of(fn)
        args = self._node.args
        known: dict[int | str, str] = {arg.arg: arg.arg for arg in (*args.args, *args.kwonlyargs)}
        known.update(enumerate(arg.arg for arg in (*args.posonlyargs, *args.args)))
        self._names = {known[parameter]} if parameter in known else set()  # the context's, here

    def lines(self) -> list[str]:
        """The durable calls of the function, a line each, what is nested indented."""
        if not self._names:
            return ["the context goes into *args or **kwargs, where it can't be followed"]
        body = self._node.body
        return self._read_all(body if isinstance(body, list) else [body])

    def _definition_of(self, fn: FunctionType) -> _Function:
        """The syntax tree of a loaded function, after making sure that it is this function's."""
        code, file = fn.__code__, fn.__code__.co_filename
        linecache.checkcache(file)
        source = "".join(linecache.getlines(file, fn.__globals__))
        if not source:
            why = "there is no source to read (it was typed at a prompt or made by exec)"
            raise self._unreadable(why, "define it in a file or in a notebook cell")
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # a notebook cell may await at its top
        try:
            tree = compile(source, file, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
            codes = _codes_in(compile(source, file, "exec", flags, dont_inherit=True))
        except SyntaxError:
            tree, codes = ast.Module([], []), iter(())
        nodes = [
            node for node in ast.walk(tree) if isinstance(node, _Function) and _is_at(node, code)
        ]
        if len(nodes) > 1:
            why = f"line {code.co_firstlineno} defines several functions of one name"
            raise self._unreadable(why, "give each a line of its own")
        place = code.co_name, code.co_firstlineno
        same = [found for found in codes if (found.co_name, found.co_firstlineno) == place]
        if not nodes or not same or _spoken(same[0], nodes[0]) != _spoken(code, nodes[0]):
            raise self._unreadable(f"{file} was edited since it was loaded", "restart the process")
        return nodes[0]

    def _unreadable(self, reason: str, hint: str) -> StructureUnreadableError:
        return StructureUnreadableError(workflow=self._workflow.name, reason=reason, hint=hint)

    def _read(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.If) and (patch_id := self._patch_in(node.test)):
            self.patches.append(patch_id)
            new, old = self._read_all(node.body), self._read_all(node.orelse)
            return new if self._taken is None or patch_id in self._taken else old
        if self._is_context(node):
            return [f"the context is used as {ast.unparse(node)!r}, where it can't be followed"]
        if isinstance(node, ast.Attribute) and self._is_context(node.value):
            taken = f"{node.attr} is taken from the context, where it can't be followed"
            return [] if node.attr in _READ_ONLY else [taken]
        outside, lines = self._names, []
        fields = sorted(ast.iter_fields(node), key=lambda field: field[0] not in _AS_OFTEN)
        for field, value in fields:  # what runs as often as the node comes before the rest of it
            if field == "body" and isinstance(node, _Function):
                own = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
                self._names = outside - own  # its parameters hide names of the same spelling
            found = self._read_all(value if isinstance(value, list) else [value])
            once = field in _AS_OFTEN and not isinstance(node, ast.While)
            if found and not once and isinstance(node, _NESTING):
                header = _WORDS.get(field, type(node).__name__.lower())
                found = [f"{header}:", *(f"  {line}" for line in found)]
            lines += found
        self._names = outside
        return lines

    def _read_all(self, parts: Sequence[object]) -> list[str]:
        return [line for part in parts if isinstance(part, ast.AST) for line in self._read(part)]

    def _call(self, node: ast.Call) -> list[str]:
        """A call: on the context, with the context handed to it, or neither."""
        durable = isinstance(node.func, ast.Attribute) and self._is_context(node.func.value)
        if durable and getattr(node.func, "attr", "") == "patched":
            why = f"{ast.unparse(node)} (line {node.lineno}) isn't the whole test of an if"
            raise self._unreadable(why, "write if ctx.patched('id'): … else: …, with the id in it")
        lines = [] if durable else self._read(node.func)
        handed: list[int | str] = []
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)  # which place?
        places = [("" if starred else place, argument) for place, argument in enumerate(node.args)]
        places += [(word.arg or "", word.value) for word in node.keywords]
        for place, argument in places:
            if self._is_context(argument) and not durable and place != "":
                handed.append(place)
            else:
                lines += self._read(argument)
        if isinstance(node.func, ast.Attribute) and durable:
            named = [word.value for word in node.keywords if word.arg in _FIRST]
            lines.append(_call_line(node.func.attr, [*node.args, *named]))
        for place in handed:
            lines += self._helper(node.func, place)
        return lines

    def _helper(self, func: ast.expr, place: int | str) -> list[str]:
        found = self._resolve(func)
        found = found.fn if isinstance(found, Workflow) else found
        if not isinstance(found, FunctionType):
            return [f"the context is handed to {ast.unparse(func)}, which can't be read"]
        if found.__code__ in self._outer:
            return [f"{found.__name__} again"]
        inner = _Reader(self._workflow, found, place, self._outer, self._taken)
        lines = inner.lines()
        self.patches += inner.patches
        return lines

    def _patch_in(self, test: ast.expr) -> str | None:
        """The id where an `if` asks for a patch and for nothing else."""
        match test:
            case ast.Call(ast.Attribute(owner, "patched"), [ast.Constant(str(patch_id))], []):
                return patch_id if self._is_context(owner) else None
        return None

    def _resolve(self, func: ast.expr) -> Any:
        """What a name, or an attribute of a module, stands for when the function is called."""
        if isinstance(func, ast.Attribute):
            owner = self._resolve(func.value)
            return getattr(owner, func.attr, None) if isinstance(owner, ModuleType) else None
        if not isinstance(func, ast.Name):
            return None
        code, cells = self._fn.__code__, self._fn.__closure__ or ()
        if func.id in code.co_freevars:
            try:
                return cells[code.co_freevars.index(func.id)].cell_contents
            except ValueError:  # defined after the workflow, and not yet
                return None
        own = (*code.co_varnames, *code.co_cellvars)
        return None if func.id in own else self._fn.__globals__.get(func.id)

    def _is_context(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._names


def _call_line(method: str, args: list[ast.expr]) -> str:
    match method, args:
        case _, [ast.Constant(str(name)), *_] if method in _NAMED:
            return f"{method} {name!r}"
        case "gather", [ast.Dict(keys, values), *_]:
            branches = (_branch(*both) for both in zip(keys, values, strict=True))
            return f"gather {', '.join(branches)}"
        case "child", [ast.Name() | ast.Attribute() as of, *_]:
            return f"child {ast.unparse(of)}"
    return f"{method} with a computed name" if method in _NAMED and args else method


def _branch(key: ast.expr | None, call: ast.expr) -> str:
    """Only what every Python spells alike: no other text of an expression goes into the hash."""
    func = call.func if isinstance(call, ast.Call) else None
    kind = getattr(func, "attr", getattr(func, "id", "step")).lower()
    name = repr(key.value) if isinstance(key, ast.Constant) else "with a computed name"
    return f"{kind} {name if key else 'more'}"


def _is_at(node: _Function, code: CodeType) -> bool:
    first_line = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
    place = getattr(node, "name", "<lambda>"), first_line
    return place == (code.co_name, code.co_firstlineno)


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)


def _spoken(code: CodeType, node: _Function) -> list[object]:
    """Every durable-looking word and every branch of a function's bytecode, in order.

    Equal if source and code fit. Only words that the source knows are compared, and nothing that
    stands in an assertion, since pytest rewrites those.
    """
    parts = list(ast.walk(node))
    words = {getattr(part, "attr", getattr(part, "value", None)) for part in parts}
    words |= {*_DURABLE, *(name for name in dis.opmap if name.startswith(_BRANCHES))}
    asserts = [part for part in parts if isinstance(part, ast.Assert)]
    asserted = {line for it in asserts for line in range(it.lineno, (it.end_lineno or 0) + 1)}
    codes = (code, *_codes_in(code))
    spoken = (one for inner in codes for one in dis.get_instructions(inner))
    kept = (one for one in spoken if one.positions and one.positions.lineno not in asserted)
    found = (word for one in kept for word in (one.opname, one.argval))
    return [word for word in found if isinstance(word, str) and word in words]
