"""Options that name a cluster and a namespace, and reads of objects through kubectl: for the commands that look."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal_cli import kubectl

Function = TypeVar("Function", bound=Callable[..., Any])


def options(function: Function) -> Function:
    """`--namespace`, `--kubeconfig` and `--context`, as kubectl has them."""
    for option in (
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
        click.option("-n", "--namespace", default="", help="Default: the context's."),
    ):
        function = option(function)
    return function


def read(target: kubectl.Target, *arguments: str) -> dict[str, Any]:
    """`kubectl get ... -o json`. Raises ClickException with what kubectl said."""
    try:
        found = json.loads(kubectl.output(target, ["get", *arguments, "-o", "json"]))
    except (kubectl.KubectlError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not isinstance(found, dict):
        raise click.ClickException("kubectl did not print an object")
    return found
