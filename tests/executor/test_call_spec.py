"""Call specs: arguments flattened and results built as the exported module had them."""

from __future__ import annotations

import json
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_abi.errors import AotiError, InvalidProgram, NotSupported
from aoti_executor.call_spec import CallSpec, flatten, parse_call_spec, unflatten

LEAF = {"type": None, "context": None, "children_spec": []}
KEYS = st.lists(st.text(max_size=4), max_size=3, unique=True)


def node(kind, context, children):
    return {"type": kind, "context": context, "children_spec": children}


def spec_of(value):
    """Write the spec of a value whose leaves are integers, as PyTorch does."""
    if isinstance(value, tuple):
        return node("builtins.tuple", "null", [spec_of(item) for item in value])
    if isinstance(value, list):
        return node("builtins.list", "null", [spec_of(item) for item in value])
    if isinstance(value, OrderedDict):
        return node(
            "collections.OrderedDict", json.dumps(list(value)), [spec_of(item) for item in value.values()]
        )
    if isinstance(value, dict):
        return node("builtins.dict", json.dumps(list(value)), [spec_of(item) for item in value.values()])
    return LEAF


def text(tree):
    return json.dumps([1, tree])


trees = st.recursive(
    st.integers(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.dictionaries(st.text(max_size=4), inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=10,
)


@given(st.lists(trees, max_size=3).map(tuple), st.dictionaries(st.text(max_size=4), trees, max_size=3), trees)
@settings(max_examples=200, deadline=None)
def test_what_is_flattened_is_built_again(args, kwargs, result):
    spec = parse_call_spec(text(spec_of((args, kwargs))), text(spec_of(result)))
    leaves = [value for _, value in flatten(spec, args, dict(reversed(kwargs.items())))]
    expected = [value for _, value in flatten(spec, args, kwargs)]
    assert leaves == expected
    given_back = parse_call_spec(text(spec_of(((), {}))), text(spec_of((args, kwargs)))).result
    assert unflatten(given_back, leaves) == (args, kwargs)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
@settings(max_examples=200, deadline=None)
def test_junk_is_refused_and_never_a_crash(document):
    try:
        parse_call_spec(json.dumps(document) or "x", text(LEAF))
    except AotiError:
        return
    raise AssertionError("junk was accepted")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("not json", InvalidProgram),
        ("[" * 100000, InvalidProgram),
        (json.dumps([2, LEAF]), NotSupported),
        (text(LEAF), InvalidProgram),
        (text(node("builtins.tuple", "null", [LEAF])), InvalidProgram),
        (
            text(
                node(
                    "builtins.tuple",
                    "null",
                    [node("builtins.tuple", "null", []), node("builtins.dict", "3", [])],
                )
            ),
            InvalidProgram,
        ),
        (
            text(
                node(
                    "builtins.tuple",
                    "null",
                    [node("builtins.tuple", "null", []), node("builtins.dict", '["a"]', [])],
                )
            ),
            InvalidProgram,
        ),
        (json.dumps([1, {"type": None, "context": None, "children_spec": [LEAF]}]), InvalidProgram),
    ],
)
def test_malformed_specs(given, error):
    with pytest.raises(error):
        parse_call_spec(given, text(LEAF))


def test_deep_nesting_is_bounded():
    tree = LEAF
    for _ in range(100):
        tree = node("builtins.list", "null", [tree])
    with pytest.raises(InvalidProgram, match="nests deeper"):
        parse_call_spec(text(spec_of(((), {}))), text(tree))


def test_no_spec_is_no_error():
    assert parse_call_spec("", "") is None


def test_unknown_class_names_the_way_out():
    given = node(
        "builtins.tuple",
        "null",
        [node("builtins.tuple", "null", [node("my.Class", "null", [LEAF])]), node("builtins.dict", "[]", [])],
    )
    spec = parse_call_spec(text(given), text(node("my.Class", "null", [LEAF, LEAF])))
    assert isinstance(spec, CallSpec)
    with pytest.raises(NotSupported, match=r"model\.run"):
        flatten(spec, (object(),), {})
    with pytest.raises(NotSupported, match=r"model\.run"):
        unflatten(spec.result, [1, 2])


def test_wrong_number_of_outputs_is_the_plugins_fault():
    spec = parse_call_spec(text(spec_of(((), {}))), text(spec_of((1, 2))))
    with pytest.raises(InvalidProgram, match="2 leaves and 3 outputs"):
        unflatten(spec.result, [1, 2, 3])


@pytest.mark.torch
def test_agrees_with_pytorch(child):
    child(
        """
        import json
        from collections import OrderedDict, defaultdict, deque, namedtuple
        import torch
        from torch.utils import _pytree
        from aoti_executor.call_spec import parse_call_spec, flatten, unflatten
        values = [
            1, (1, 2), [1, [2]], {"b": 1, "a": (2, 3)}, OrderedDict(b=1, a=2), deque([1, 2]),
            {"x": {"y": [1, (2, {"z": 3})]}}, (), {}, torch.fx.immutable_collections.immutable_list([1, 2]),
        ]
        for value in values:
            args, kwargs = (value, 7), {"k": value}
            leaves, spec = _pytree.tree_flatten((args, kwargs))
            out = _pytree.tree_flatten(value)[1]
            mine = parse_call_spec(_pytree.treespec_dumps(spec), _pytree.treespec_dumps(out))
            assert [leaf for _, leaf in flatten(mine, args, kwargs)] == leaves, value
            built = unflatten(mine.result, _pytree.tree_leaves(value))
            assert built == value and (type(built) is type(value) or isinstance(value, list)), value
        """
    )
