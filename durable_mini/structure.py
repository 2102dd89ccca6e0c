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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import update_wrapper
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any, overload

from durable_mini.codec import check_name
from durable_mini.errors import StructureUnreadableError

_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # a notebook cell may await at its top
_DURABLE = frozenset({"step", "effect", "now", "random", "uuid"})
_READ_ONLY = frozenset({"run_id", "generation", "attempt", "replaying"})

_Definition = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Structure:
    """The durable calls of a workflow, readable and in order, and their hash (hexadecimal)."""

    hash: str
    calls: tuple[str, ...]


class Workflow:
    """A workflow function under a name and a version; made by `@workflow`, callable like the
    function.
    """

    def __init__(self, fn: Callable[..., Any], name: str, version: str) -> None:
        self.fn, self.name, self.version = fn, name, version
        self._structure: Structure | None = None
        update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version!r}>"


@overload
def workflow(fn: Callable[..., Any], /) -> Workflow: ...
@overload
def workflow(
    *, version: str = "1", name: str | None = None
) -> Callable[[Callable[..., Any]], Workflow]: ...
def workflow(
    fn: Callable[..., Any] | None = None, /, *, version: str = "1", name: str | None = None
) -> Workflow | Callable[[Callable[..., Any]], Workflow]:
    """Make a function of a context and an input into a workflow.

    Args: version: which version of the workflow this code is; a run goes on with the version it
        started with. name: the workflow's name in the journal; the function's name by default.

    Raises:
        TypeError: the function is async or a generator; replay drives plain functions.
        InvalidNameError: the name or the version can't be stored.
    """

    def decorate(function: Callable[..., Any]) -> Workflow:
        label = name if name is not None else function.__name__
        check_name(label, "workflow name")
        check_name(version, "workflow version")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"workflow {label!r} is an async function; write it with a plain def")
        if inspect.isgeneratorfunction(function):
            raise TypeError(f"workflow {label!r} is a generator; it has to return its result")
        return Workflow(function, label, version)

    return decorate if fn is None else decorate(fn)


def structure(workflow: Workflow) -> Structure:
    """The durable calls of a workflow as its source shows them, and their hash.

    Read once for each loaded function: what counts is the code that runs, not a file edited since.

    Raises: StructureUnreadableError: there is no source, it can't be told which function it is,
        or it was edited since it was loaded.
    """
    if workflow._structure is None:
        reader = _Reader(workflow.name)
        calls = tuple(reader.read(workflow.fn, position=0))
        workflow._structure = Structure(sha256("\n".join(calls).encode()).hexdigest()[:16], calls)
    return workflow._structure


class _Reader:
    """Reads one workflow, definition by definition: a helper has a source of its own."""

    def __init__(self, workflow: str) -> None:
        self._workflow = workflow
        self._open: list[CodeType] = []  # helpers that are being read, against endless recursion

    def read(
        self, fn: Callable[..., Any], *, position: int | None = None, keyword: str | None = None
    ) -> list[str]:
        """The calls of a function that receives the context at a position or under a keyword."""
        if not isinstance(fn, FunctionType):
            raise self._unreadable("it is no plain function", "define it with def")
        node = self._definition_of(fn)
        parameter = keyword or _parameter_at(node, position or 0)
        if parameter is None:
            return ["the context goes into *args, where it can't be followed"]
        if fn.__code__ in self._open:
            return [f"{fn.__name__} again"]
        self._open.append(fn.__code__)
        lines = _Block(self, fn, {parameter}).read(node.body)
        self._open.pop()
        return lines

    def _definition_of(self, fn: FunctionType) -> _Definition:
        """The syntax tree of a loaded function, after making sure that it is this function's."""
        code = fn.__code__
        linecache.checkcache(code.co_filename)
        lines = linecache.getlines(code.co_filename, fn.__globals__)
        if not lines:
            raise self._unreadable(
                "there is no source to read (it was typed at a prompt or made by exec)",
                "define it in a file or in a notebook cell",
            )
        edited = self._unreadable(
            f"{code.co_filename} was edited since it was loaded",
            "load it again: restart the process",
        )
        try:
            tree = compile("".join(lines), code.co_filename, "exec", _FLAGS, dont_inherit=True)
            loadable = compile(
                "".join(lines),
                code.co_filename,
                "exec",
                _FLAGS & ~ast.PyCF_ONLY_AST,
                dont_inherit=True,
            )
        except SyntaxError:
            raise edited from None
        nodes = [node for node in ast.walk(tree) if _is_definition(node, code)]
        codes = [found for found in _codes_in(loadable) if _same_place(found, code)]
        if len(nodes) > 1:
            raise self._unreadable(
                f"line {code.co_firstlineno} defines several functions of one name",
                "give each a line of its own",
            )
        if not nodes or not codes or _spoken(codes[0], nodes[0]) != _spoken(code, nodes[0]):
            raise edited
        return nodes[0]

    def _unreadable(self, reason: str, hint: str) -> StructureUnreadableError:
        return StructureUnreadableError(self._workflow, reason, hint)


class _Block:
    """Reads statements of one function in the order in which they run; `names` are those of the
    context.
    """

    def __init__(self, reader: _Reader, fn: FunctionType, names: set[str]) -> None:
        self._reader, self._fn, self._names = reader, fn, names
        self._lines: list[str] = []

    def read(self, nodes: list[ast.stmt] | ast.expr | None) -> list[str]:
        """The calls in these nodes, as lines."""
        kept, self._lines = self._lines, []
        for node in nodes if isinstance(nodes, list) else [nodes]:
            if node is not None:
                self._visit(node)
        found, self._lines = self._lines, kept
        return found

    def _visit(self, node: ast.AST) -> None:
        method = getattr(self, f"_visit_{type(node).__name__}", None)
        if method is not None:
            method(node)
        else:
            for child in ast.iter_child_nodes(node):
                self._visit(child)

    def _nested(self, header: str, nodes: list[ast.stmt] | ast.expr | None) -> None:
        self._indent(header, self.read(nodes))

    def _indent(self, header: str, lines: list[str]) -> None:
        if lines:
            self._lines.append(f"{header}:")
            self._lines.extend(f"  {line}" for line in lines)

    def _visit_If(self, node: ast.If | ast.IfExp) -> None:
        self._visit(node.test)
        otherwise = self.read(node.orelse)
        self._indent("if", self.read(node.body) or (["nothing"] if otherwise else []))
        self._indent("else", otherwise)

    _visit_IfExp = _visit_If

    def _visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._visit(node.values[0])
        for value in node.values[1:]:
            self._nested("and" if isinstance(node.op, ast.And) else "or", value)

    def _visit_For(self, node: ast.For) -> None:
        self._visit(node.iter)
        self._nested("for", node.body)
        self._nested("after the loop", node.orelse)

    def _visit_While(self, node: ast.While) -> None:
        self._nested("while", [ast.Expr(node.test), *node.body])
        self._nested("after the loop", node.orelse)

    def _visit_Try(self, node: ast.Try) -> None:
        self._nested("try", node.body)
        for handler in node.handlers:
            self._nested("except", handler.body)
        self._nested("else", node.orelse)
        self._nested("finally", node.finalbody)

    _visit_TryStar = _visit_Try

    def _visit_match_case(self, node: ast.match_case) -> None:
        self._nested("case", node.body)

    def _comprehension(self, node: Any) -> None:
        self._visit(node.generators[0].iter)
        parts = [part for g in node.generators for part in (g.iter, *g.ifs)][1:]
        parts += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._nested("for", [ast.Expr(part) for part in parts])

    _visit_ListComp = _visit_SetComp = _visit_DictComp = _visit_GeneratorExp = _comprehension

    def _visit_FunctionDef(self, node: ast.FunctionDef | ast.Lambda) -> None:
        own = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        inner = _Block(self._reader, self._fn, self._names - own)
        self._indent("in an inner function", inner.read(node.body))

    _visit_Lambda = _visit_FunctionDef

    def _visit_Name(self, node: ast.Name) -> None:
        if node.id in self._names:
            self._lines.append(f"the context is used as {node.id!r}, where it can't be followed")

    def _visit_Attribute(self, node: ast.Attribute) -> None:
        if not self._is_context(node.value):
            self._visit(node.value)
        elif node.attr not in _READ_ONLY:
            self._lines.append(f"{node.attr} is taken from the context, where it can't be followed")

    def _visit_Call(self, node: ast.Call) -> None:
        durable = isinstance(node.func, ast.Attribute) and self._is_context(node.func.value)
        if not durable:
            self._visit(node.func)
        handed: list[tuple[int | None, str | None]] = []
        for index, argument in enumerate(node.args):
            if self._is_context(argument) and not durable:
                handed.append((index, None))
            else:
                self._visit(argument)
        for keyword in node.keywords:
            if self._is_context(keyword.value) and not durable and keyword.arg:
                handed.append((None, keyword.arg))
            else:
                self._visit(keyword.value)
        if isinstance(node.func, ast.Attribute) and durable:
            self._lines.append(_call_line(node.func.attr, node))
        for position, name in handed:
            self._lines.extend(self._helper(node.func, position, name))

    def _helper(self, func: ast.expr, position: int | None, keyword: str | None) -> list[str]:
        found = self._resolve(func)
        found = found.fn if isinstance(found, Workflow) else found
        if not isinstance(found, FunctionType):
            return [f"the context is handed to {ast.unparse(func)}, which can't be read"]
        return self._reader.read(found, position=position, keyword=keyword)

    def _resolve(self, func: ast.expr) -> Any:
        """The object that a name, or an attribute of a module, stands for when the function is
        called.
        """
        if isinstance(func, ast.Attribute):
            owner = self._resolve(func.value)
            return getattr(owner, func.attr, None) if isinstance(owner, ModuleType) else None
        if not isinstance(func, ast.Name):
            return None
        code = self._fn.__code__
        if func.id in code.co_freevars:
            try:
                return (self._fn.__closure__ or ())[code.co_freevars.index(func.id)].cell_contents
            except ValueError:
                return None
        return None if func.id in code.co_varnames else self._fn.__globals__.get(func.id)

    def _is_context(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._names


def _call_line(method: str, node: ast.Call) -> str:
    if not node.args:
        return method
    first = node.args[0]
    if not isinstance(first, ast.Constant):
        return f"{method} with a computed name"
    return f"{method} {first.value!r}" if isinstance(first.value, str) else method


def _parameter_at(node: _Definition, position: int) -> str | None:
    parameters = [*node.args.posonlyargs, *node.args.args]
    return parameters[position].arg if position < len(parameters) else None


def _is_definition(node: ast.AST, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        return False
    first_line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first_line == code.co_firstlineno


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)


def _same_place(one: CodeType, other: CodeType) -> bool:
    return (one.co_name, one.co_firstlineno) == (other.co_name, other.co_firstlineno)


def _spoken(code: CodeType, node: _Definition) -> list[object]:
    """Every durable-looking word of a function's bytecode, in order: equal when source and code
    are one.

    Only words that the source knows are compared, so that a tool that rewrites bytecode (as
    pytest does with assertions) doesn't make every function look edited.
    """
    words: set[object] = set(_DURABLE)
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            words.add(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            words.add(part.value)
    found: list[object] = []
    for inner in (code, *_codes_in(code)):
        for instruction in dis.get_instructions(inner):
            value = instruction.argval
            if isinstance(value, str) and value in words:
                found.append(value)
    return found
