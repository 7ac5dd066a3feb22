"""`shoal crds`: hands its arguments to the generator in shoal_api, which knows no command-line library."""

import click

from shoal_api import crd


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    help="Write or check the custom resource definitions (--check, --out DIR).",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def crds(arguments: tuple[str, ...]) -> None:
    raise SystemExit(crd.main(arguments))
