"""Values to JSON and back, argument digests, copies for steps, and names.

Each property has an oracle of its own here, written without the codec: what JSON makes of a value,
and which values are the same.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import gc
import math
import os
import subprocess
import sys
import time
import uuid
import warnings
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, strategies as st

from durable_mini import InvalidNameError, PayloadError
from durable_mini.codec import check_name, decode, detached, digest_arguments, round_trip

LIMIT = 1_000_000

any_text = st.text(st.characters(exclude_categories=()), max_size=6)  # lone surrogates too
scalars = st.none() | st.booleans() | st.integers() | st.floats() | any_text
keys = st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.just("1")
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def stored(value: Any, limit_bytes: int = LIMIT) -> tuple[str, Any]:
    return round_trip(value, "step", "charge", "result", limit_bytes)


def refused(value: Any) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        stored(value)
    return caught.value


class CannotBeStoredError(Exception):
    """The oracle's verdict: JSON has no place for this value."""


def as_json_has_it(value: Any) -> Any:
    """The oracle: what a value is after JSON, without asking the json module."""
    match value:
        case str():  # JSON text is UTF-16 in its escapes: two halves in a row are one character
            halves = value.encode("utf-16-le", "surrogatepass")
            return halves.decode("utf-16-le", "surrogatepass")
        case float() if not math.isfinite(value):
            raise CannotBeStoredError
        case dict():
            pairs = [(key_as_json_has_it(key), as_json_has_it(item)) for key, item in value.items()]
            if len(dict(pairs)) < len(pairs):
                raise CannotBeStoredError
            return dict(pairs)
        case list() | tuple():
            return [as_json_has_it(item) for item in value]
    return value


def key_as_json_has_it(key: Any) -> str:
    match key:
        case None:
            return "null"
        case bool():
            return "true" if key else "false"
        case str() | float():
            return str(as_json_has_it(key))
    return str(key)


@given(values)
def test_round_trip_gives_what_json_gives_or_refuses(value):
    try:
        expected = as_json_has_it(value)
    except CannotBeStoredError:
        refused(value)
        return
    text, live = stored(value)
    # Compared as text: 1, 1.0 and True are equal to Python, but not one value.
    assert repr(live) == repr(expected) == repr(decode(text))
    assert text.isascii()
    assert stored(live)[0] == text, "what was read is stored the same way again"


@given(values)
def test_round_trip_leaves_the_callers_value_alone(value):
    before = repr(value)
    try:
        _, live = stored(value)
    except PayloadError:
        assert repr(value) == before
        return
    if isinstance(live, dict):
        live["added"] = 1
    elif isinstance(live, list):
        live.append(1)
    assert repr(value) == before


def test_round_trip_makes_one_character_of_two_surrogate_halves_the_first_time_too():
    assert stored("\ud83d\ude00") == ('"\\ud83d\\ude00"', "\U0001f600")
    assert stored("\ud83d") == ('"\\ud83d"', "\ud83d")


@pytest.mark.parametrize(
    ("twins", "shown"),
    [
        ({1: "a", "1": "b"}, ["1", "'1'"]),
        ({True: "a", "true": "b"}, ["True", "'true'"]),
        ({False: "a", "false": "b"}, ["False", "'false'"]),
        ({1.5: "a", "1.5": "b"}, ["1.5", "'1.5'"]),
        ({None: "a", "null": "b"}, ["None", "'null'"]),
        ({"\U0001f600": "a", "\ud83d\ude00": "b"}, ["'\U0001f600'", "'\\ud83d\\ude00'"]),
    ],
)
def test_two_keys_that_become_one_are_refused_by_name(twins, shown):
    error = refused({"rows": [0, twins]})
    assert "result['rows'][1]" in error.path
    assert all(key in str(error) for key in shown)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_refused_as_value_and_as_key(number):
    assert refused(number).path == "result"
    assert refused({"a": [1, number]}).path == "result['a'][1]"
    error = refused({"a": [1, {number: 1}]})
    assert error.path.startswith("result['a'][1]")
    assert str(number) in str(error)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Shade(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Order:
    item: str
    lines: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenOrder:
    item: str
    lines: Any = None


@pytest.mark.parametrize(
    ("bad", "type_name"),
    [
        (b"x", "bytes"),
        (bytearray(b"x"), "bytearray"),
        ({1, 2}, "set"),
        (frozenset({1}), "frozenset"),
        (Decimal(1), "Decimal"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime"),
        (uuid.UUID(int=1), "UUID"),
        (PurePosixPath("a"), "PurePosixPath"),
        (Colour.RED, "Colour"),
        (Order("tea"), "Order"),
        (1j, "complex"),
        (object(), "object"),
        (len, "builtin_function_or_method"),
        ((n for n in range(3)), "generator"),
        (range(3), "range"),
        (collections.deque([1]), "deque"),
    ],
)
def test_a_type_that_json_lacks_is_refused_with_its_name_and_place(bad, type_name):
    for value, place in ((bad, "result"), ({"a": [0, (bad,)]}, "result['a'][1][0]")):
        error = refused(value)
        assert error.path == place
        assert type_name in error.reason
        assert "step 'charge'" in str(error)
        assert (error.kind, error.name) == ("step", "charge")


@pytest.mark.parametrize("key", [(1, 2), b"k", Colour.RED, frozenset(), 1j])
def test_a_key_that_is_no_scalar_is_refused(key):
    error = refused({"a": {key: 1}})
    assert "result['a']" in error.path
    assert repr(key) in error.reason


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_that_contains_itself_is_refused():
    ring: list[Any] = []
    ring.append(ring)
    chain: dict[str, Any] = {}
    chain["next"] = [chain]
    for value in (ring, chain):
        assert "contains itself" in refused(value).reason


def test_a_value_that_is_nested_without_end_is_refused():
    assert "nested too deeply" in refused(nested(100_000)).reason


def test_an_integer_too_long_for_text_is_refused():
    assert refused({"a": 10**5_000}).path.startswith("result")
    assert refused({"a": {10**5_000: 1}}).path.startswith("result")
    long = 10**4_000
    assert stored(long)[1] == long


def test_a_coroutine_is_refused_by_name_and_never_warned_about():
    async def charge():
        return "charged"

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        reason = refused(charge()).reason  # the error itself would keep the coroutine alive
        gc.collect()
    assert "coroutine" in reason
    assert warned == []


def test_an_awaitable_is_refused():
    loop = asyncio.new_event_loop()
    try:
        assert "Future" in refused(loop.create_future()).reason
    finally:
        loop.close()


def test_size_is_counted_in_bytes_up_to_the_limit_and_no_further():
    text, _ = stored("é")
    assert len(text) == 8, "the text is ASCII, so a character is a byte"
    assert stored("é", limit_bytes=8)[1] == "é"
    with pytest.raises(PayloadError) as caught:
        stored("é", limit_bytes=7)
    error = caught.value
    assert (error.size_bytes, error.limit_bytes) == (8, 7)
    for part in ("step 'charge'", "8", "7", "Next:"):
        assert part in str(error)


# Digests


def digest(*args: Any, **kwargs: Any) -> str:
    return digest_arguments(args, kwargs)[0]


def turned(value: Any) -> Any:
    """The same value with every dictionary built in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [turned(item) for item in value]
    return value


def in_order(value: Any) -> str:
    """The oracle: a text that two values share exactly when they are the same JSON value."""
    if isinstance(value, dict):
        return f"{{{sorted((key, in_order(item)) for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{[in_order(item) for item in value]}]"
    return repr(value)


@given(plain_values)
def test_digest_doesnt_depend_on_the_order_of_a_dictionary(value):
    assert digest(value, x=value) == digest(turned(value), x=turned(value))


@given(plain_values, plain_values)
def test_digest_of_different_values_differs(one, other):
    assume(in_order(one) != in_order(other))
    assert digest(one) != digest(other)
    assert digest(x=one) != digest(x=other)
    assert digest(b"", one) != digest(b"", other), "the long way, too"


@given(st.lists(plain_values, max_size=3), st.dictionaries(st.text(max_size=2), plain_values))
def test_digest_tells_positional_from_keyword_arguments(args, kwargs):
    plain = digest_arguments(tuple(args), kwargs)[0]
    assert plain != digest_arguments((*args, kwargs), {})[0]
    if kwargs:
        assert plain != digest_arguments(tuple(args), {})[0]
        assert plain != digest_arguments((*args, *kwargs.values()), {})[0]
    assert (
        digest_arguments((*args, b""), kwargs)[0] != digest_arguments((*args, b"", kwargs), {})[0]
    )


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: Any
    y: Any


DIFFERENT = [
    None,
    "null",
    True,
    1,
    1.0,
    "1",
    "",
    b"",
    b"1",
    "bytes(31)",
    Decimal(1),
    Decimal(2),
    Decimal("NaN"),
    "Decimal(1)",
    date(2026, 1, 1),
    datetime(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
    timedelta(seconds=1),
    timedelta(seconds=2),
    uuid.UUID(int=1),
    uuid.UUID(int=2),
    str(uuid.UUID(int=1)),
    Colour.RED,
    Colour.BLUE,
    Shade.RED,
    Order("tea"),
    Order("coffee"),
    Order("tea", lines=[b"1"]),
    FrozenOrder("tea"),
    {1},
    {1, 2},
    {"1"},
    set(),
    [],
    {},
    [1],
    [[1]],
    [1, 2],
    [2, 1],
    PurePosixPath("a"),
    PurePosixPath("b"),
    [PurePosixPath("a"), PurePosixPath("b")],
    [PurePosixPath("a),PurePosixPath(b")],
    PurePosixPath("a\udcff"),
    {"a": b"1"},
    {"a": b"2"},
    {"b": b"1"},
    {"a": Colour.RED},
    {Colour.RED: "a"},
    {Colour.BLUE: "a"},
    10**5_000,
    10**5_000 + 1,
]


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [0, v], lambda v: {"k": (v,)}])
def test_digest_counts_known_types_by_value(wrap):
    seen: dict[str, Any] = {}
    for value in DIFFERENT:
        found = digest(wrap(value))
        assert found not in seen, f"{value!r} has the digest of {seen[found]!r}"
        seen[found] = value
        assert digest_arguments((wrap(value),), {})[1] == [], "nothing opaque in it"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({0, 8}, {8, 0}),  # these two collide, so each set is walked in the order it was made in
        ({"a", "b", "c"}, {"c", "b", "a"}),
        ({1, b"2", None}, frozenset({None, b"2", 1})),
        (Decimal("1.50"), Decimal("1.50")),
        (Order("tea", {"b": 1, "a": b"2"}), Order("tea", {"a": b"2", "b": 1})),
        ({Colour.RED: 1, "x": b""}, {"x": b"", Colour.RED: 1}),
        (b"ab", bytearray(b"ab")),
        (Point(1, [2]), (1, [2])),
        (collections.OrderedDict(a=1, b=2), {"b": 2, "a": 1}),
    ],
)
def test_digest_of_equal_values_is_equal(one, other):
    assert digest(one) == digest(other)
    assert digest(x=[one]) == digest(x=[other])


class Client:
    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = Lock()


class OtherClient(Client):
    pass


def test_digest_counts_an_opaque_object_by_its_type_and_lists_it():
    found, opaque = digest_arguments((Client("a"), {"k": [Client("b"), len]}), {"x": Client("c")})
    assert opaque == ["Client", "builtin_function_or_method"]
    assert found == digest(Client("z"), {"k": [Client("y"), print]}, x=Client("x"))
    assert digest(Client("a")) != digest(OtherClient("a"))
    assert digest(Client("a"), 1) != digest(Client("a"), 2)


SEEDED = """
import enum, sys
from decimal import Decimal
from durable_mini.codec import digest_arguments
class Colour(enum.Enum):
    RED = "red"
words = {f"word {n}" for n in range(20)}
args = (words, {w: {w, b"1"} for w in words}, frozenset([Colour.RED, "x", None, Decimal("1.5")]))
print(digest_arguments(args, {"plain": sorted(words), "bag": words})[0])
"""


def test_digest_is_the_same_in_every_process():
    digests = set()
    for seed in ("0", "1", "42"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SEEDED], env=env, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert len(digests.pop()) == 16


# Copies


@given(values)
def test_detached_gives_an_equal_value_of_equal_types(value):
    assert repr(detached(value)) == repr(value)


class Doubled(collections.namedtuple("Doubled", "one two")):
    """A named tuple that is made from one value and keeps two."""

    def __new__(cls, one):
        return super().__new__(cls, one, one)


COPIED = {
    "list": [1, [2]],
    "dict": {"a": {"b": [1]}},
    "tuple": (1, [2], {"a": 3}),
    "named tuple": Point([1], {"a": 2}),
    "named tuple with a constructor of its own": Doubled([1]),
    "default dictionary": collections.defaultdict(list, a=[1]),
    "ordered dictionary": collections.OrderedDict(b=[1], a=2),
    "counter": collections.Counter("aab"),
    "set": {1, 2},
    "bytearray": bytearray(b"ab"),
    "dataclass": Order("tea", [1, [2]]),
    "frozen dataclass with slots": FrozenOrder("tea", {"a": [1]}),
    "dataclass in a list": [Order("tea", [Order("milk", [1])])],
    "time": time.gmtime(0),
}


@pytest.mark.parametrize("value", COPIED.values(), ids=COPIED.keys())
def test_detached_keeps_value_and_type(value):
    copied = detached(value)
    assert type(copied) is type(value)
    assert copied == value
    assert repr(copied) == repr(value)


def mutable_parts(value: Any) -> list[Any]:
    """Every list, dictionary, set, byte array and dataclass in a value, however deep."""
    parts = [value] if isinstance(value, list | dict | set | bytearray) else []
    if dataclasses.is_dataclass(value):
        parts.append(value)
        inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, dict):
        inner = list(value.values())
    else:
        inner = list(value) if isinstance(value, list | tuple) else []
    return parts + [part for item in inner for part in mutable_parts(item)]


@pytest.mark.parametrize("value", COPIED.values(), ids=COPIED.keys())
def test_detached_shares_nothing_that_can_be_changed(value):
    mine = {id(part) for part in mutable_parts(value)}
    assert not mine & {id(part) for part in mutable_parts(detached(value))}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda client: [client],
        lambda client: {"client": client},
        lambda client: Point(client, []),
        lambda client: collections.OrderedDict(client=client),
        lambda client: collections.defaultdict(list, client=client),
        lambda client: Order("tea", client),
        lambda client: FrozenOrder("tea", (client,)),
        lambda client: {client},
    ],
)
def test_detached_hands_an_opaque_object_on_as_it_is(wrap):
    client = Client("a")  # holds a lock, which can't be copied
    copied = detached(wrap(client))
    assert any(client is part for part in everything_in(copied))


def everything_in(value: Any) -> list[Any]:
    if dataclasses.is_dataclass(value):
        inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, dict):
        inner = list(value.values())
    else:
        inner = list(value) if isinstance(value, list | tuple | set) else []
    return [value, *(part for item in inner for part in everything_in(item))]


# Names


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "''"),
        ("x" * 1_000_000, "1,000,000"),
        ("x" * 201, "201"),
        ("a\nb", r"'a\nb'"),
        ("a\x00b", r"'a\x00b'"),
        ("\ud83d", r"'\ud83d'"),
        (None, "None"),
        (7, "7"),
        (b"plan", "plan"),
        (["plan"], "plan"),
    ],
)
def test_a_name_that_cant_be_kept_is_refused_in_one_short_line(name, shown):
    with pytest.raises(InvalidNameError) as caught:
        check_name(name, "step name")
    message = str(caught.value)
    for part in ("step name", shown, "Next:"):
        assert part in message
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.parametrize("name", ["a", "x" * 200, "Größe 42 %/#~", "プラン"])
def test_a_printable_name_is_accepted(name):
    check_name(name, "step name")
