"""What the engine simulator must answer to a request body; imported only for `--verify`."""

from collections.abc import Callable

import click
import orjson


def expectation() -> Callable[[bytes], str]:
    """The simulator's own function from a chat body to its answer. Raises ClickException where it is not installed."""
    try:
        from shoal_sim import chat_template, tokens
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"--verify needs the engine simulator: pip install 'shoal[sim]' ({error})"
        ) from error

    def expected(body: bytes) -> str:
        request = orjson.loads(body)
        return tokens.expected_text(chat_template.render(request), request["max_tokens"])

    return expected
