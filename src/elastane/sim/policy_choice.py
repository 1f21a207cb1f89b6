"""Make a policy from what a user types: a known name, with options, or a class in a file of his own.

`tiresias`, `tiresias:limits=500+10000,promote_knob=8`, `my_policy.py:Sjf`. Options are the fields of the
policy's dataclass; their types decide how the text is read. A class is a policy by its interface alone.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
import typing
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from elastane.model.errors import ConfigError
from elastane.policy.base import Policy
from elastane.policy.registry import POLICIES


def make_policy(choice: str) -> Policy:
    """Return the policy that `choice` describes.

    Raises ConfigError for an unknown name (listing the known ones), a file or class that is not there, an
    option that the policy does not have, or a value of the wrong kind.
    """
    kind, options = _find_class(choice)
    given = _parse_options(choice, kind, options)
    try:
        policy = kind(**given)
    except ConfigError as error:
        raise ConfigError(f"policy {choice!r}: {error}") from error
    except TypeError as error:
        raise ConfigError(f"policy {choice!r} cannot be made without arguments: {error}") from error
    lacking = [name for name in ("name", "clairvoyant", "plan") if not hasattr(policy, name)]
    if lacking:
        raise ConfigError(
            f"policy {choice!r} has no {', '.join(lacking)}; a policy has `name`, `clairvoyant` and "
            "`plan(view, now) -> Plan`. See docs/write-your-own-policy.md."
        )
    return policy  # type: ignore[no-any-return]


def choose_labels(choices: Sequence[str]) -> dict[str, str]:
    """Return the name of each choice in reports: as typed, or for a file the policy's own name.

    Names that would not be unique stay as typed.
    """
    labels = {choice: _label(choice) for choice in choices}
    taken = Counter(labels.values())
    return {choice: label if taken[label] == 1 else choice for choice, label in labels.items()}


def _label(choice: str) -> str:
    path, _, rest = choice.partition(":")
    if not path.endswith(".py"):
        return choice
    options = rest.partition(":")[2]
    return make_policy(choice).name + (f":{options}" if options else "")


def describe_policy(kind: type[Any]) -> str:
    """Return the first line that a policy's module says, and its own if it is not alone there."""
    module = sys.modules[kind.__module__]
    siblings = [other for other in POLICIES.values() if other.__module__ == kind.__module__]
    texts = [module.__doc__ or ""]
    if len(siblings) > 1 or not module.__doc__:
        texts.append(inspect.getdoc(kind) or "")
    return " ".join(text.strip().partition("\n")[0] for text in texts).strip()


def _find_class(choice: str) -> tuple[type[Any], str]:
    """Return the class that is meant, and the text of its options."""
    name, _, rest = choice.partition(":")
    if name.endswith(".py"):
        wanted, _, options = rest.partition(":")
        return _load_class(Path(name), wanted), options
    if name in POLICIES:
        return POLICIES[name], rest
    near = difflib.get_close_matches(name, POLICIES, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"unknown policy {name!r}.{hint} Known policies: {', '.join(sorted(POLICIES))}; or a class in a file "
        "of your own: path/to/file.py:ClassName."
    )


def _load_class(path: Path, wanted: str) -> type[Any]:
    """Return class `wanted` of the Python file `path`; with no name given, its only policy."""
    module = _load_module(path)
    own = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "plan")
    }
    if wanted in own:
        return own[wanted]
    if not wanted and len(own) == 1:
        return next(iter(own.values()))
    found = ", ".join(sorted(own)) or "none"
    asked = f"no policy class {wanted!r}" if wanted else "not exactly one policy class"
    raise ConfigError(f"{path} has {asked}; classes with a plan() in it: {found}. Use {path}:ClassName.")


def _load_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"policy file {path}: there is no such file.")
    name = f"elastane_user_policy_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the file ends in .py"
    assert spec.loader is not None, "the file ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"policy file {path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _parse_options(choice: str, kind: type[Any], text: str) -> dict[str, Any]:
    if not text:
        return {}
    known = {field.name: field for field in fields(kind)} if is_dataclass(kind) else {}
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name not in known or not equals:
            names = ", ".join(f"{field.name}={_default(field)}" for field in known.values()) or "none"
            raise ConfigError(
                f"policy {choice!r}: {part!r} is no option of it. Options are NAME=VALUE, with commas; "
                f"its options and defaults: {names}."
            )
        given[name] = _parse_value(choice, name, hints[name], value)
    return given


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "..."
    if isinstance(field.default, tuple):
        return "+".join(f"{item:g}" for item in field.default)
    return str(field.default)


def _parse_value(choice: str, name: str, hint: object, text: str) -> object:
    """Return `text` as the kind of value that the option's type asks for."""
    try:
        if typing.get_origin(hint) is tuple:
            return tuple(float(item) for item in text.split("+"))
        if typing.get_origin(hint) is typing.Literal:
            return {str(allowed): allowed for allowed in typing.get_args(hint)}[text]
        if hint is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
                text.lower()
            ]
        return hint(text) if callable(hint) else text
    except (KeyError, ValueError) as error:
        allowed = (
            [str(item) for item in typing.get_args(hint)] if typing.get_origin(hint) is typing.Literal else []
        )
        kind = " or ".join(allowed) or getattr(hint, "__name__", str(hint))
        raise ConfigError(
            f"policy {choice!r}: option {name}={text!r} is not of its kind ({kind})."
        ) from error
