"""Values to JSON text and back, and a fingerprint of arguments.

Guarantees: what `round_trip` hands out is what a later replay will read, or it raises and says
where the value can't be kept. Two sets of arguments that differ in anything but an opaque object
have different digests. Leaves to others: which value is whose.
"""

import copy
import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

from durable_mini.errors import InvalidNameError, PayloadError

MAX_NAME_LENGTH = 200
_SCALARS = frozenset({type(None), bool, int, float, str})
_CANONICAL_BY_TEXT = (Decimal, Fraction, date, time, timedelta, UUID, PurePath)

decode: Callable[[str], Any] = json.loads
_decode_first = json.JSONDecoder().raw_decode  # for text that was encoded a moment ago
# Without json's own check a value that contains itself ends in RecursionError, which is caught below.
_encode = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


def round_trip(value: Any, kind: str, name: str, root: str, limit_bytes: int) -> tuple[str, Any]:
    """Encode a value, and decode what was encoded: live code then sees what replay will see.

    Args:
        value: what is to be stored.
        kind: whose value it is, for the error, e.g. "step".
        name: that step's name, or the run's id.
        root: what the value is called in the path, e.g. "result".
        limit_bytes: the largest text that is accepted.

    Returns: The JSON text (ASCII) and the value as it reads back: tuples have become lists, keys
        strings.

    Raises:
        PayloadError: JSON can't hold the value, two of its keys become one, or it is too large.
    """
    try:
        text = _encode(value)
        back, _ = _decode_first(text)
        # Only an object can lose something on the way: two keys that turn into the same string.
        kept = "{" not in text or _encode(back) == text
    except (TypeError, ValueError, RecursionError) as error:
        raise _explain(value, kind, name, root, error) from None
    if not kept:
        raise _explain(value, kind, name, root, ValueError("doesn't read back as it was"))
    if len(text) > limit_bytes:
        raise PayloadError(
            kind,
            name,
            root,
            f"takes {len(text):,} bytes, the limit is {limit_bytes:,}",
            size_bytes=len(text),
            limit_bytes=limit_bytes,
        )
    return text, back


def _explain(value: Any, kind: str, name: str, root: str, error: Exception) -> PayloadError:
    """Turn an encoder's complaint into one that names the place; the slow walk is paid on failure
    only.
    """
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns later, somewhere else, that it was never awaited
        return PayloadError(kind, name, root, "is a coroutine: an async function can't be a step")
    try:
        path, reason = next(_faults(value, root), (root, str(error)))
    except RecursionError:
        path, reason = root, "is nested too deeply, or contains itself"
    return PayloadError(kind, name, path, reason)


def _faults(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every place in a value that JSON can't hold, with the reason."""
    if isinstance(value, float):
        if not isfinite(value):
            yield path, f"is {value}, which JSON doesn't have"
    elif isinstance(value, dict):
        seen: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str | int | float | None):
                yield path, f"has the key {key!r}, which is no string"
                continue
            name = (
                decode(_encode(key))
                if isinstance(key, str)
                else next(iter(decode(_encode({key: 0}))))
            )
            if name in seen:
                yield path, f"has the keys {seen[name]!r} and {key!r}, which become one"
            seen[name] = key
            yield from _faults(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _faults(item, f"{path}[{index}]")
    elif not isinstance(value, str | int | None):
        yield path, f"is of type {type(value).__name__}, which JSON doesn't have"


def _not_plain(_value: Any) -> Any:
    raise TypeError


encode_sorted = json.JSONEncoder(
    check_circular=False, sort_keys=True, separators=(",", ":"), default=_not_plain
).encode


def digest_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], kind: str, name: str
) -> tuple[str, tuple[str, ...]]:
    """Fingerprint of the arguments of a call, and the types that count by their name only.

    JSON values, decimals, dates, UUIDs, paths, bytes, enums, sets and dataclasses count by value;
    anything else (a client, a connection, a function) counts by its type.

    Raises:
        PayloadError: the arguments contain themselves.
    """
    try:
        text = encode_sorted(args)
        if kwargs:
            text += encode_sorted(kwargs)
        return _fingerprint(text), ()
    except (TypeError, ValueError, RecursionError):
        pass  # something that isn't plain JSON: take the long way
    opaque: list[str] = []
    try:
        text = _canonical(args, opaque) + _canonical(kwargs, opaque)
    except RecursionError:
        raise PayloadError(
            kind, name, "arguments", "are nested too deeply, or contain themselves"
        ) from None
    return _fingerprint(text), tuple(dict.fromkeys(opaque))


def _fingerprint(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _canonical(value: Any, opaque: list[str]) -> str:
    """One text for one value, whatever the order of its keys or members."""
    kind = type(value).__qualname__
    if isinstance(value, Enum):
        return f"{kind}.{value.name}"
    if value is None or isinstance(value, str | int | float):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(_canonical(item, opaque) for item in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_canonical(k, opaque)}:{_canonical(v, opaque)}" for k, v in value.items())
        return f"{{{','.join(sorted(pairs))}}}"
    if isinstance(value, set | frozenset):
        return f"set({','.join(sorted(_canonical(item, opaque) for item in value))})"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"bytes({bytes(value).hex()})"
    if isinstance(value, _CANONICAL_BY_TEXT):
        return f"{kind}({value})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (
            f"{f.name}={_canonical(getattr(value, f.name), opaque)}"
            for f in dataclasses.fields(value)
        )
        return f"{kind}({','.join(fields)})"
    opaque.append(kind)
    return f"<{type(value).__module__}.{kind}>"


def detached(value: Any) -> Any:
    """A copy whose containers can be changed without the caller noticing; opaque objects are
    handed on.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        return [detached(item) for item in value]
    if kind is dict:
        return {key: detached(item) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [detached(item) for item in value]
        return kind(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        clone = copy.copy(value)
        clone[:] = [detached(item) for item in value]
        return clone
    if isinstance(value, dict):
        clone = copy.copy(value)
        clone.update((key, detached(item)) for key, item in value.items())
        return clone
    if isinstance(value, set | bytearray):
        return copy.copy(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        clone = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(clone, field.name, detached(getattr(value, field.name)))
        return clone
    return value


def check_name(name: str, what: str) -> None:
    """Refuse a name that can't be stored, printed or told from another.

    Raises:
        InvalidNameError: not a string, empty, over 200 characters, or with unprintable characters.
    """
    if not isinstance(name, str):
        raise InvalidNameError(what, f"is of type {type(name).__name__}, not a string")
    _check_text(name, what)


@lru_cache(maxsize=4096)
def _check_text(name: str, what: str) -> None:
    if not name:
        raise InvalidNameError(what, "is empty")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidNameError(what, f"has {len(name):,} characters")
    if not name.isprintable():
        raise InvalidNameError(what, f"{name!r} has unprintable characters")
