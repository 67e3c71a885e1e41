"""`NamedTuple` for modules that must start fast.

``import typing`` takes time, and each `typing.NamedTuple` adds to it: every annotation is wrapped, and a
constructor compiled from source text. With it, ``aoti-inspect fixtures/plugins/mlp.so`` takes 1.3 times the
processor time (median of 40 pairs of runs, Python 3.11). This one does neither. Type checkers see the real
`typing.NamedTuple`; at run time a class gets the same fields, defaults, ``_replace``, ``_asdict`` and
``_make``, from annotations that are never evaluated: its module needs ``from __future__ import annotations``.

`TYPE_CHECKING` is the usual constant, without the import that usually brings it.
"""

from __future__ import annotations

from operator import itemgetter

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - re-exported
else:
    try:
        from _collections import _tuplegetter as field
    except ImportError:  # another Python than CPython: slower, and the same

        def field(index: int, doc: str) -> property:
            """Return a descriptor for one field."""
            return property(itemgetter(index), doc=doc)

    class _Record(tuple):
        __slots__ = ()
        _fields: tuple[str, ...] = ()
        _field_defaults: dict[str, object] = {}  # noqa: RUF012 - each class has its own

        def __new__(cls, *values: object, **named: object) -> _Record:
            if named or len(values) != len(cls._fields):
                values += cls._rest(len(values), named)
            return tuple.__new__(cls, values)

        @classmethod
        def _rest(cls, given: int, named: dict[str, object]) -> tuple[object, ...]:
            """Return the values after the first ``given``: from keywords, else from defaults."""
            fields, defaults = cls._fields, cls._field_defaults
            rest = []
            for name in fields[given:]:
                if name in named:
                    rest.append(named.pop(name))
                elif name in defaults:
                    rest.append(defaults[name])
                else:
                    raise TypeError(f"{cls.__name__}() lacks a value for {name!r}")
            if named:
                raise TypeError(f"{cls.__name__}() takes no {next(iter(named))!r}, or was given it twice")
            if given > len(fields):
                raise TypeError(f"{cls.__name__}() takes {len(fields)} values, {given} were given")
            return tuple(rest)

        @classmethod
        def _make(cls, values: object) -> _Record:
            """Return a record of the values of an iterable."""
            return cls(*values)

        def _replace(self, **named: object) -> _Record:
            """Return a copy with some fields replaced."""
            values = dict(zip(self._fields, self, strict=True))
            unknown = named.keys() - values.keys()
            if unknown:
                raise ValueError(f"{type(self).__name__} has no field {min(unknown)!r}")
            values.update(named)
            return tuple.__new__(type(self), values.values())

        def _asdict(self) -> dict[str, object]:
            """Return the fields by name, in their order."""
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({fields})"

        def __getnewargs__(self) -> tuple[object, ...]:
            return tuple(self)

    class _RecordType(type):
        """Turns the annotations of a class body into the fields of a record."""

        def __new__(mcs, name: str, _bases: tuple[type, ...], body: dict[str, object]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = {entry: body.pop(entry) for entry in fields if entry in body}
            for index, entry in enumerate(fields):
                body[entry] = field(index, f"Field {index}.")
            body.update(__slots__=(), _fields=fields, _field_defaults=defaults, __match_args__=fields)
            return type(name, (_Record,), body)

    #: The base that a class names; the class itself becomes a plain subclass of tuple.
    NamedTuple = type.__new__(_RecordType, "NamedTuple", (), {})
