"""Options that belong together, as one parameter of a command.

A command declares a parameter whose type is a group: a frozen dataclass marked with `option_group`, each
field of which is an annotated option with a default. `with_groups` turns such a command into one that the
parser can read: the fields take the parameter's place, and the group is built before the command is called.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

_MARK = "__option_group__"
_T = TypeVar("_T")


def option_group(kind: type[_T]) -> type[_T]:
    """Mark a dataclass as a group of options."""
    setattr(kind, _MARK, True)
    return kind


def with_groups(command: Callable[..., int]) -> Callable[..., int]:
    """Return `command` with the fields of its groups as options of their own."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if getattr(kind, _MARK, False):
            groups[name] = kind
            parameters += _expand(kind)
        else:
            parameters.append(parameter.replace(annotation=kind))

    @functools.wraps(command)
    def call(**given: Any) -> int:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return command(**given)

    signature = inspect.Signature(parameters, return_annotation=int)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": int}
    return call


def _expand(kind: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
