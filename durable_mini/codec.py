"""Values to JSON text and back, and a fingerprint of arguments.

Guarantees: what `round_trip` hands out is what a later replay will read, or it raises and says
where the value can't be kept (a value nested so deeply that it meets Python's own limit is read
back only where as much of the stack is left). Arguments that differ as values have different
digests, except where JSON has one text for both (a tuple and a list, the keys 1 and "1") and except
for opaque objects. Leaves to others: which value is whose.
"""

import copy
import dataclasses
import json
from collections.abc import Coroutine, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

from durable_mini.errors import InvalidNameError, PayloadError

MAX_NAME_LENGTH = 200
_SCALARS = frozenset({type(None), bool, int, float, str})
_CANONICAL_BY_TEXT = (Decimal, date, time, timedelta, UUID, PurePath)

decode = json.loads
_decode_first = json.JSONDecoder().raw_decode  # for text that was encoded a moment ago
# A value that contains itself then ends in RecursionError, which is caught below.
encode = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


def round_trip(value: Any, kind: str, name: str, root: str, limit_bytes: int) -> tuple[str, Any]:
    """Encode a value, and decode what was encoded: live code then sees what replay will see.

    Args:
        value: what is to be stored.
        kind: whose value it is, for the error, e.g. "step".
        name: that step's name, or the run's id.
        root: what the value is called in the path, e.g. "result".
        limit_bytes: the largest text that is accepted.

    Returns:
        The JSON text (ASCII) and the value as it reads back: tuples are lists, keys are strings.

    Raises:
        PayloadError: JSON can't hold the value, two of its keys become one, or it is too large.
    """
    try:
        text = encode(value)
        back, _ = _decode_first(text)
        # Only an object can lose something on the way: two keys that turn into the same string.
        kept = "{" not in text or encode(back) == text
    except (TypeError, ValueError, RecursionError):
        kept = False
    if not kept:
        path, reason = _fault(value, root)
        raise PayloadError(kind=kind, name=name, path=path, reason=reason)
    if len(text) > limit_bytes:
        reason = f"takes {len(text):,} bytes, the limit is {limit_bytes:,}"
        size = {"size_bytes": len(text), "limit_bytes": limit_bytes}
        raise PayloadError(kind=kind, name=name, path=root, reason=reason, **size)
    return text, back


def _fault(value: Any, root: str) -> tuple[str, str]:
    """Where a value can't be kept, and why; this slow walk is paid on failure only."""
    if isinstance(value, Coroutine):
        value.close()  # otherwise Python warns later, somewhere else, that it was never awaited
        return root, "is a coroutine: an async function can't be a step"
    try:
        return next(_faults(value, root))
    except (RecursionError, StopIteration, ValueError):  # the walk met what stopped the encoder
        return root, "is nested too deeply, contains itself, or has too long a number in it"


def _faults(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every place in a value that JSON can't hold, with the reason."""
    if isinstance(value, dict | list | tuple):
        seen: dict[str, Any] = {}
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if not _is_scalar(key):
                yield path, f"has the key {key!r}, which JSON doesn't have"
            elif (twin := seen.setdefault(encode({key: None}), key)) is not key:
                yield path, f"has the keys {twin!r} and {key!r}, which become one"
            yield from _faults(item, f"{path}[{key!r}]")
    elif not _is_scalar(value):
        what = value if isinstance(value, float) else f"of type {type(value).__name__}"
        yield path, f"is {what}, which JSON doesn't have"


def _is_scalar(value: Any) -> bool:
    """Whether JSON has the value, by itself and as a key."""
    return isfinite(value) if isinstance(value, float) else isinstance(value, str | int | None)


encode_sorted = json.JSONEncoder(check_circular=False, sort_keys=True, separators=(",", ":")).encode


def digest_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, list[str]]:
    """Fingerprint of the arguments of a call, and the types that count by their name only.

    JSON values, decimals, dates, UUIDs, paths, bytes, enums, sets and dataclasses count by value;
    anything else (a client, a connection, a function) counts by its type.

    Raises:
        RecursionError: the arguments contain themselves.
    """
    opaque: list[str] = []
    try:
        text = encode_sorted(args) + (encode_sorted(kwargs) if kwargs else "")
    except (TypeError, ValueError):  # something that isn't plain JSON: take the long way
        text = _canonical(args, opaque) + _canonical(kwargs, opaque)
    return blake2b(text.encode(), digest_size=8).hexdigest(), opaque and [*dict.fromkeys(opaque)]


def _canonical(value: Any, opaque: list[str]) -> str:
    """One text for one value, whatever the order of its keys or members."""
    kind = type(value).__qualname__
    if isinstance(value, Enum):
        return f"{kind}.{value.name}"
    if value is None or isinstance(value, str | int | float):  # Python writes no huge decimals
        return hex(value) if type(value) is int else json.dumps(value)
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
        return f"{kind}({json.dumps(str(value))})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        fields = (f"{name}={_canonical(getattr(value, name), opaque)}" for name in names)
        return f"{kind}({','.join(fields)})"
    opaque.append(kind)
    return f"<{type(value).__module__}.{kind}>"


def detached(value: Any) -> Any:
    """A copy whose containers can be changed unnoticed by the caller; opaque objects are shared."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {key: detached(item) for key, item in value.items()}
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_make")):
        return getattr(kind, "_make", kind)(map(detached, value))  # for a named tuple `_make`
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    if not fields and not isinstance(value, dict | list | set | bytearray):
        return value
    clone: Any = copy.copy(value)
    if isinstance(value, dict | list):
        for place in value if isinstance(value, dict) else range(len(value)):
            clone[place] = detached(value[place])
    for field in fields:
        object.__setattr__(clone, field.name, detached(getattr(value, field.name)))
    return clone


def check_name(name: str, what: str) -> None:
    """Refuse a name that can't be stored, printed or told from another.

    Raises:
        InvalidNameError: not a string, empty, over 200 characters, or with unprintable characters.
    """
    if not (isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()):
        size = f" ({len(name):,} characters)" if isinstance(name, str) else ""
        raise InvalidNameError(what=what, reason=f"is {name!r:.60}{size}")
