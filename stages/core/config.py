"""The base of every config model, and the translation of pydantic's errors into one line each."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from stages.core.errors import ConfigError

UNKEYED: dict[str, Any] = {"keyed": False}
"""Pass as ``Field(json_schema_extra=UNKEYED)``: the field cannot change a result and stays out of the key."""

ConfigT = TypeVar("ConfigT", bound="Config")


class Config(BaseModel):
    """Frozen, strict about unknown keys; the docstring under each field is its description."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, populate_by_name=True
    )

    def key_fields(self) -> dict[str, Any]:
        """The fields that decide the result, as plain JSON values (see UNKEYED)."""
        return {
            name: _plain(getattr(self, name))
            for name, field in type(self).model_fields.items()
            if not (isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("keyed") is False)
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.key_fields()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def parse(model: type[ConfigT], values: Mapping[str, Any], where: str) -> ConfigT:
    """Validate ``values`` as ``model``; a ConfigError names the first offending field.

    Args:
        where: prefix of the field's path in the message, e.g. the file's name.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise explain(error, model, where) from None


def explain(error: ValidationError, model: type[BaseModel], where: str) -> ConfigError:
    """The first pydantic error as object, got, expected and way out; the others are counted."""
    # An unknown key is the likelier mistake than the missing one it often causes.
    errors = sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    first = errors[0]
    path = ".".join(str(part) for part in first["loc"])
    what = f"{where}: {path}" if path else where
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = known_keys(model, first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.5)
        way = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(known)) or 'none'}"
        return ConfigError(what, got="an unknown key", expected="a key of the schema", fix=way + more)
    if first["type"] == "missing":
        return ConfigError(what, got="nothing", expected="a value", fix="add the key" + more)
    if first["type"] == "value_error":
        return ConfigError(what, got=_short(first["input"]), expected=str(first["ctx"]["error"]) + more)
    message = first["msg"]
    return ConfigError(
        what, got=_short(first["input"]), expected=message[:1].lower() + message[1:] + more, fix="correct the value"
    )


def known_keys(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Field names of the model that ``path`` leads to, through mappings and unions where they occur."""
    models: list[type[BaseModel]] = [model]
    for part in path:
        models = [
            found
            for current in models
            for name, field in current.model_fields.items()
            if part in (name, field.alias)
            for found in _models_in(field.annotation)
        ] or models
    return [field.alias or name for current in models for name, field in current.model_fields.items()]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in getattr(annotation, "__args__", ()) for found in _models_in(inner)]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
