"""Images of a local cluster: an image reference names a local environment instead of a file system.

A YAML file maps references to PATH, PYTHONPATH, variables and the entrypoint that the image would have. The node agent
reads it at every container start, so an edited file counts from the next start on. Pure but for reading the file.
"""

from pathlib import Path
from typing import Any

import pydantic
import yaml

from shoal_local.yamlfile import parse_yaml


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Environment(_Strict):
    """What stands in for one image."""

    image: str
    """Repository, without registry and tag: `shoal/router` stands for `registry.example/shoal/router:1.2` as well."""
    path: tuple[str, ...] = ()
    python_path: tuple[str, ...] = pydantic.Field(default=(), alias="pythonPath")
    env: dict[str, str] = pydantic.Field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    """Used as an image's ENTRYPOINT: when the container has no `command`."""
    command: tuple[str, ...] = ()
    """Used as an image's CMD: when the container has neither `command` nor `args`."""
    keep: tuple[str, ...] = ()
    """Folders that must stay visible even where a volume covers them (a checkout below /tmp)."""


class ImagesFile(_Strict):
    """The whole file."""

    images: tuple[Environment, ...]


class ImageMissingError(LookupError):
    """No entry stands for an image."""


def repository_of(reference: str) -> str:
    """`host:5000/a/b:tag@sha256:...` -> `host:5000/a/b`."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def parse_images(text: str, origin: str) -> tuple[Environment, ...]:
    """The entries of a file's text."""
    return parse_yaml(ImagesFile, text, origin).images


def find_image(images: tuple[Environment, ...], reference: str) -> Environment:
    """The entry for a reference: equal to its repository or to its last path parts; the longest one wins."""
    repository = repository_of(reference)
    fitting = [each for each in images if repository == each.image or repository.endswith(f"/{each.image}")]
    if not fitting:
        known = ", ".join(sorted(each.image for each in images))
        raise ImageMissingError(f"no environment stands for image {reference!r}; known: {known}")
    return max(fitting, key=lambda each: len(each.image))


def argv_of(environment: Environment, command: list[str], args: list[str]) -> list[str]:
    """What runs, by Kubernetes' rules for `command` and `args` against ENTRYPOINT and CMD."""
    if command:
        return [*command, *args]
    return [*environment.entrypoint, *(args or environment.command)]


def base_variables(environment: Environment) -> dict[str, str]:
    """Variables an image would set; a container's own come on top."""
    system = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
    variables = {"PATH": ":".join([*environment.path, *system]), "LANG": "C.UTF-8"}
    if environment.python_path:
        variables["PYTHONPATH"] = ":".join(environment.python_path)
    return variables | environment.env


def render_images(entries: list[Environment]) -> str:
    """The file's text."""
    dumped: list[dict[str, Any]] = [
        each.model_dump(mode="json", by_alias=True, exclude_defaults=True) for each in entries
    ]
    return yaml.safe_dump({"images": dumped}, sort_keys=False)


def read_images(path: Path) -> tuple[Environment, ...]:
    """The entries of a file."""
    return parse_images(path.read_text(), str(path))
