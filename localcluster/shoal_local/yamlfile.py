"""Reads a user's YAML into a model, with errors that name the field on one line each."""

from typing import TypeVar

import pydantic
import yaml

_Model = TypeVar("_Model", bound=pydantic.BaseModel)


class InvalidFileError(ValueError):
    """A file is not what it should be; the message names file and fields."""


def parse_yaml(model: type[_Model], text: str, origin: str) -> _Model:
    """The model of a file's text; `origin` is what errors call the file."""
    try:
        return model.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise InvalidFileError(f"{origin} is not YAML: {error}") from error
    except pydantic.ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc'])) or 'file'}: {each['msg']}" for each in error.errors()]
        raise InvalidFileError(f"{origin}: {'; '.join(lines)}") from error
