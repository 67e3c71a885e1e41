"""A plugin's call spec: how a Python module's arguments and results map to flat lists of tensors.

The spec is what ``torch.utils._pytree.treespec_dumps`` wrote: ``[1, {"type", "context", "children_spec"}]``,
where a leaf has the type null and a dict's context lists its keys. PyTorch flattens, drops whatever is no
tensor, runs and unflattens (``torch/export/pt2_archive/_package.py``); so does this, without PyTorch.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.errors import InvalidArgument, InvalidProgram, NotSupported

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 64
_TUPLE, _LIST, _DICT = "builtins.tuple", "builtins.list", "builtins.dict"
_LISTS = {_LIST, "torch.fx.immutable_collections.immutable_list"}
_DICTS = {_DICT, "torch.fx.immutable_collections.immutable_dict"}
_ORDERED, _DEFAULT, _DEQUE = "collections.OrderedDict", "collections.defaultdict", "collections.deque"
_NAMED = "collections.namedtuple"


class Tree(NamedTuple):
    """One node of a spec: ``kind`` is None for a leaf; ``keys`` are a dict's, or a named tuple's name."""

    kind: str | None
    keys: tuple[Any, ...]
    children: tuple[Tree, ...]

    @property
    def leaves(self) -> int:
        """How many leaves the tree has."""
        return 1 if self.kind is None else sum(child.leaves for child in self.children)


LEAF = Tree(None, (), ())


class CallSpec(NamedTuple):
    """Arguments and results of the Python module that was compiled.

    Attributes:
        args: one tree per positional argument.
        kwargs: trees of the keyword arguments, by name, in the order of flattening.
        result: the tree of the result.
    """

    args: tuple[Tree, ...]
    kwargs: dict[str, Tree]
    result: Tree


def parse_call_spec(in_spec: str, out_spec: str) -> CallSpec | None:
    """Parse what ``AOTInductorModelContainerGetCallSpec`` gave; None if a plugin has none.

    Raises:
        InvalidProgram: it is malformed.
        NotSupported: it uses another protocol version.
    """
    if not in_spec or not out_spec:
        return None
    inputs, result = _parse(in_spec, "input"), _parse(out_spec, "output")
    if (
        inputs.kind != _TUPLE
        or len(inputs.children) != 2
        or inputs.children[0].kind != _TUPLE
        or inputs.children[1].kind != _DICT
    ):
        raise InvalidProgram("the plugin's input spec is not a tuple of arguments and a dict of keywords")
    args, kwargs = inputs.children
    if not all(isinstance(key, str) for key in kwargs.keys):
        raise InvalidProgram("the plugin's input spec has keyword arguments whose names are no text")
    return CallSpec(args.children, dict(zip(kwargs.keys, kwargs.children, strict=True)), result)


def _parse(text: str, which: str) -> Tree:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidProgram(f"the plugin's {which} spec is not JSON", cause=str(error)) from None
    if not isinstance(document, list) or len(document) != 2:
        raise InvalidProgram(f"the plugin's {which} spec is not a pair of version and tree")
    if document[0] != 1:
        raise NotSupported(f"the plugin's {which} spec has version {document[0]!r}; 1 is known")
    return _node(document[1], which, 0)


def _node(node: Any, which: str, depth: int) -> Tree:
    if depth > _DEPTH:
        raise InvalidProgram(f"the plugin's {which} spec nests deeper than {_DEPTH}")
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        raise InvalidProgram(f"the plugin's {which} spec has a malformed node: {str(node)[:80]}")
    kind, context = node.get("type"), node.get("context")
    children = tuple(_node(child, which, depth + 1) for child in node["children_spec"])
    if kind is None:
        if children:
            raise InvalidProgram(f"the plugin's {which} spec has a leaf with children")
        return LEAF
    if not isinstance(kind, str):
        raise InvalidProgram(f"the plugin's {which} spec has a node of the type {str(kind)[:80]}")
    keys: tuple[Any, ...] = ()
    if kind in _DICTS or kind in (_ORDERED, _DEFAULT, _NAMED):
        keys = _keys(kind, context, which)
        if kind != _NAMED and len(keys) != len(children):
            raise InvalidProgram(
                f"the plugin's {which} spec has a dict of {len(keys)} keys and {len(children)} values"
            )
    return Tree(kind, keys, children)


def _keys(kind: str, context: Any, which: str) -> tuple[Any, ...]:
    try:
        value = json.loads(context) if isinstance(context, str) else context
    except ValueError:
        value = context
    if kind == _NAMED:
        return (str(value),)
    if kind == _DEFAULT and isinstance(value, dict):
        value = value.get("dict_context")
    if kind == _DEFAULT and isinstance(value, list) and len(value) == 2 and isinstance(value[1], list):
        value = value[1]
    if not isinstance(value, list) or any(isinstance(key, (list, dict)) for key in value):
        raise InvalidProgram(f"the plugin's {which} spec has a dict without a list of keys")
    if len(set(value)) != len(value):
        raise InvalidProgram(f"the plugin's {which} spec has a dict with one key twice")
    return tuple(value)


def flatten(spec: CallSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the leaves of a call, each with a path for messages ("x['a'][0]"), in the plugin's order.

    Raises:
        InvalidArgument: the arguments have another structure than those that the model was exported with.
    """
    if len(args) != len(spec.args):
        raise InvalidArgument(
            f"the model takes {len(spec.args)} positional arguments, {len(args)} were given"
            + (f"; its keyword arguments are {', '.join(spec.kwargs)}" if spec.kwargs else "")
        )
    if kwargs.keys() != spec.kwargs.keys():
        missing = [name for name in spec.kwargs if name not in kwargs]
        unknown = [name for name in kwargs if name not in spec.kwargs]
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"unknown {', '.join(unknown)}"] if unknown else []
        raise InvalidArgument(f"the keyword arguments are not those of the model: {'; '.join(parts)}")
    leaves: list[tuple[str, Any]] = []
    for index, (tree, value) in enumerate(zip(spec.args, args, strict=True)):
        leaves += _leaves(tree, value, f"argument {index}")
    for name, tree in spec.kwargs.items():
        leaves += _leaves(tree, kwargs[name], name)
    return leaves


def _leaves(tree: Tree, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    kind = tree.kind
    if kind is None:
        yield path, value
        return
    if kind in _DICTS or kind in (_ORDERED, _DEFAULT):
        if not isinstance(value, dict) or value.keys() != set(tree.keys):
            has = (
                f"a dict of {', '.join(map(repr, value))}"
                if isinstance(value, dict)
                else type(value).__name__
            )
            keys = ", ".join(map(repr, tree.keys))
            raise InvalidArgument(f"{path} should be a dict of {keys}, it is {has}")
        for key, child in zip(tree.keys, tree.children, strict=True):
            yield from _leaves(child, value[key], f"{path}[{key!r}]")
        return
    expected = {_TUPLE: tuple, _NAMED: tuple, _DEQUE: deque}.get(kind, list if kind in _LISTS else None)
    if expected is None:
        raise NotSupported(
            f"{path} is a {kind}, a class that only the program which exported the model knows",
            hint="call the model with its flat list of tensors: model.run([...])",
        )
    if not isinstance(value, expected) or len(value) != len(tree.children):
        count = len(tree.children)
        has = f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__
        raise InvalidArgument(f"{path} should be a {expected.__name__} of {count}, it is a {has}")
    for index, (child, item) in enumerate(zip(tree.children, value, strict=True)):
        yield from _leaves(child, item, f"{path}[{index}]")


def unflatten(tree: Tree, leaves: list[Any]) -> Any:
    """Build a result from its leaves.

    Raises:
        InvalidProgram: the plugin returned another number of tensors than its spec has leaves.
        NotSupported: the result is of a class that only the exporting program knows.
    """
    if tree.kind is None and len(leaves) == 1:
        return leaves[0]
    if tree.leaves != len(leaves):
        raise InvalidProgram(f"the plugin's output spec has {tree.leaves} leaves and {len(leaves)} outputs")
    return _build(tree, iter(leaves))


def _build(tree: Tree, leaves: Iterator[Any]) -> Any:
    kind = tree.kind
    if kind is None:
        return next(leaves)
    items = [_build(child, leaves) for child in tree.children]
    if kind in (_TUPLE, _NAMED):  # a named tuple's class is only known where the model was exported
        return tuple(items)
    if kind in _LISTS:
        return items
    if kind in _DICTS:
        return dict(zip(tree.keys, items, strict=True))
    if kind in (_ORDERED, _DEFAULT):
        pairs = zip(tree.keys, items, strict=True)
        return OrderedDict(pairs) if kind == _ORDERED else defaultdict(None, pairs)
    if kind == _DEQUE:
        return deque(items)
    raise NotSupported(
        f"the result is a {kind}, a class that only the program which exported the model knows",
        hint="take the flat list of tensors: model.run([...])",
    )
