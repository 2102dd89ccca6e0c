"""A workflow, and the fingerprint of its durable calls.

Guarantees: the hash covers kind, literal name and nesting in branches and loops of every durable
call that the source shows, in helpers too that the context is handed to; comments, formatting and
what a step does don't count, and one source has one hash on every supported Python. Where the
context leaves the reader's sight the list of calls says so. Leaves to others: what the source
doesn't show (replay compares that).
"""

import __future__ as future

import ast
import inspect
import linecache
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache, partial, update_wrapper
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from durable_mini.codec import check_name
from durable_mini.errors import StructureUnreadableError

__all__ = ["Structure", "Workflow", "structure", "workflow"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_NAMED = frozenset({"step", "effect", "wait_signal", "compensate"})
_FIRST = frozenset({"name", "calls", "workflow"})  # what the first argument may be called
_READ_ONLY = frozenset({"run_id", "generation", "attempt", "replaying"})

# Nodes of which a part may run more or less often than the node, and the parts that run as often.
_NESTING = ast.If, ast.IfExp, ast.Try, ast.TryStar, ast.match_case, ast.BoolOp, ast.For, ast.While
_COMPREHENDED = ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension
_AS_OFTEN = frozenset({"test", "target", "iter", "generators", "args", "decorator_list"})
_WORDS = {"orelse": "else", "handlers": "except", "finalbody": "finally"}

_compiled: Callable[..., Any] = lru_cache(maxsize=8)(compile)  # all workflows of a file ask for it


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

    def __init__(self, fn: Any, name: str | None, version: str) -> None:
        self.name = getattr(fn, "__name__", repr(fn)) if name is None else name
        check_name(self.name, "workflow name")
        check_name(version, "workflow version")
        odd = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
        if not isinstance(fn, FunctionType) or fn.__code__.co_flags & odd:
            raise TypeError(f"workflow {self.name!r} has to be a plain function with a return")
        self.fn, self.version = fn, version
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
    return partial(Workflow, name=name, version=version)


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
        found = dict[str, None]()
        calls = tuple(_Reader(workflow, known, found).read_function(workflow.fn, 0))
        workflow._structures[known] = Structure(structure_hash(calls), calls, tuple(found))
    return workflow._structures[known]


def structure_hash(calls: tuple[str, ...] | list[str]) -> str:
    """The hash of a list of durable calls."""
    return sha256("\n".join(calls).encode()).hexdigest()[:16]


class _Reader(NamedTuple):
    """Reads functions in the order in which they run; each scope has a reader of its own.

    Attributes:
        workflow: whose structure it is; it keeps what was read.
        taken: the patches whose new path is read; None for all.
        patches: collects, as keys, the ids of the patches that it comes across.
        functions: the one that is being read, and before it those that led there.
        names: what the context is called here.
    """

    workflow: Workflow
    taken: frozenset[str] | None
    patches: dict[str, None]
    functions: tuple[FunctionType, ...] = ()
    names: frozenset[str] = frozenset()

    def read_function(self, fn: FunctionType, place: int | str) -> list[str]:
        """The durable calls of a function, a line each, what is nested indented.

        Args:
            fn: the function, a plain one.
            place: which of its parameters is the context, by place or name.
        """
        known = self.workflow._definitions
        node = known[fn.__code__] = known.get(fn.__code__) or self._definition_of(fn)
        args = node.args
        names: dict[int | str, str] = {arg.arg: arg.arg for arg in (*args.args, *args.kwonlyargs)}
        names.update(enumerate(arg.arg for arg in (*args.posonlyargs, *args.args)))
        if place not in names:
            return ["the context goes into *args or **kwargs, where it can't be followed"]
        inside = self._replace(functions=(*self.functions, fn), names=frozenset({names[place]}))
        return inside._read_all(node.body)

    def _definition_of(self, fn: FunctionType) -> _Function:
        """The syntax tree of a loaded function, after making sure that it is this function's.

        What the source compiles to now has to be what was loaded. Only where pytest has rewritten
        assertions can't it be: there name and line have to do.
        """
        code, file = fn.__code__, fn.__code__.co_filename
        linecache.checkcache(file)
        source = "".join(linecache.getlines(file, fn.__globals__))
        if not source:
            raise self._unreadable("there is no source", "define it in a file or notebook cell")
        # A cell may await at its top, and has the `annotations` that an earlier cell imported.
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | code.co_flags & future.annotations.compiler_flag
        nodes, fits = [], any("@pytest_ar" in one.co_names for one in _codes_in(code))
        with suppress(SyntaxError):
            tree = _compiled(source, file, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
            nodes = [n for n in ast.walk(tree) if isinstance(n, _Function) and _is_at(n, code)]
            fits |= code in _codes_in(_compiled(source, file, "exec", flags, dont_inherit=True))
        if len(nodes) > 1:
            why = f"line {code.co_firstlineno} defines several functions of one name"
            raise self._unreadable(why, "give each a line of its own")
        if not nodes or not fits:
            why = f"{file} was edited since it was loaded, or a tool rewrote the code"
            raise self._unreadable(why, "restart the process, without such a tool")
        return nodes[0]

    def _unreadable(self, reason: str, hint: str) -> StructureUnreadableError:
        return StructureUnreadableError(workflow=self.workflow.name, reason=reason, hint=hint)

    def _read_all(self, parts: object) -> list[str]:
        """The durable calls in a node's field: a node, several, or something else."""
        nodes = parts if isinstance(parts, list) else [parts]
        return [line for node in nodes if isinstance(node, ast.AST) for line in self._read(node)]

    def _read(self, node: ast.AST) -> list[str]:
        match node:
            case ast.If(ast.Call(ast.Attribute(ast.Name(of), "patched"), [ast.Constant(str(key))])):
                if of in self.names:
                    self.patches[key] = None
                    new, old = self._read_all(node.body), self._read_all(node.orelse)
                    return new if self.taken is None or key in self.taken else old
            case ast.Call(ast.Attribute(ast.Name(of), method)) if of in self.names:
                inner = self._read_all([*node.args, *node.keywords])
                return [*inner, self._call_line(node, method)]
            case ast.Call():
                return self._read_other_call(node)
            case ast.Attribute(ast.Name(of), name) if of in self.names:
                taken = f"{name} is taken from the context, where it can't be followed"
                return [] if name in _READ_ONLY else [taken]
            case ast.Name(name) if name in self.names:
                return [f"the context is used as {name!r}, where it can't be followed"]
        lines: list[str] = []
        # What runs as often as the node comes before the rest of it.
        for field, part in sorted(ast.iter_fields(node), key=lambda pair: pair[0] not in _AS_OFTEN):
            own = ast.walk(node.args) if field == "body" and isinstance(node, _Function) else ()
            hidden = {inner.arg for inner in own if isinstance(inner, ast.arg)}  # by its own names
            found = self._replace(names=self.names - hidden)._read_all(part)
            once = field in _AS_OFTEN and not isinstance(node, ast.While)
            if found and not once and isinstance(node, (_NESTING, _COMPREHENDED, _Function)):
                header = _WORDS.get(field, type(node).__name__.lower())
                found = [f"{header}:", *(f"  {line}" for line in found)]
            lines += found
        return lines

    def _call_line(self, node: ast.Call, method: str) -> str:
        """The line for a call on the context."""
        args = [*node.args, *(word.value for word in node.keywords if word.arg in _FIRST)]
        match method, args:
            case "patched", _:
                why = f"{ast.unparse(node)} (line {node.lineno}) isn't the whole test of an if"
                hint = "write if ctx.patched('id'): … else: …, with the id in it"
                raise self._unreadable(why, hint)
            case _, [ast.Constant(str(name)), *_] if method in _NAMED:
                return f"{method} {name!r}"
            case "gather", [ast.Dict(keys, values), *_]:
                return f"gather {', '.join(map(_branch, keys, values))}"
            case "child", [ast.Name() | ast.Attribute() as of, *_]:
                return f"child {ast.unparse(of)}"
        return f"{method} with a computed name" if method in _NAMED and args else method

    def _read_other_call(self, node: ast.Call) -> list[str]:
        """A call that may have the context handed to it."""
        starred = any(isinstance(part, ast.Starred) for part in node.args)  # places unknown then
        given = [("" if starred else at, part) for at, part in enumerate(node.args)]
        given += [(word.arg or "", word.value) for word in node.keywords]
        handed = [at for at, part in given if at != "" and getattr(part, "id", "") in self.names]
        lines = self._read_all([node.func, *(part for at, part in given if at not in handed)])
        return lines + [line for at in handed for line in self._read_helper(node.func, at)]

    def _read_helper(self, func: ast.expr, place: int | str) -> list[str]:
        """What a function does with the context: one by its name, or an attribute of a module."""
        caller, code = self.functions[-1], self.functions[-1].__code__
        name, *attributes = ast.unparse(func).split(".")
        local = name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
        found = None if local else caller.__globals__.get(name)
        with suppress(ValueError):  # no free name, or one that is defined after the workflow
            found = (caller.__closure__ or ())[code.co_freevars.index(name)].cell_contents
        for attribute in attributes:
            found = getattr(found, attribute, None) if isinstance(found, ModuleType) else None
        match found:
            case Workflow(fn=fn) | (FunctionType() as fn):
                known = any(fn.__code__ == outer.__code__ for outer in self.functions)
                return [f"{fn.__name__} again"] if known else self.read_function(fn, place)
        return [f"the context is handed to {ast.unparse(func)}, which can't be read"]


def _branch(key: ast.expr | None, call: ast.expr) -> str:
    """Only what every Python spells alike: no other text of an expression goes into the hash."""
    func = call.func if isinstance(call, ast.Call) else None
    kind = getattr(func, "attr", getattr(func, "id", "step")).lower()
    name = repr(key.value) if isinstance(key, ast.Constant) else "with a computed name"
    return f"{kind} {name if key else 'more'}"


def _is_at(node: _Function, code: CodeType) -> bool:
    """Whether a function in the source may be this code; both begin with the first decorator."""
    first = (getattr(node, "decorator_list", None) or [node])[0]
    return (getattr(node, "name", "<lambda>"), first.lineno) == (code.co_name, code.co_firstlineno)


def _codes_in(code: CodeType) -> list[CodeType]:
    """A piece of code, and all that is defined in it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(deep for one in inner for deep in _codes_in(one))]
