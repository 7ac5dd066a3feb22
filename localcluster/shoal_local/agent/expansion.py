"""$(VAR) expansion as Kubernetes defines it for env values, command and args. Pure."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(\$|\(([^()]+)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the value if it is known and stays as it is if not; `$$` becomes `$`."""

    def replacement(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return variables.get(found[2], found[0])

    return _REFERENCE.sub(replacement, text)


def expand_all(texts: list[str], variables: Mapping[str, str]) -> list[str]:
    """`expand` of each."""
    return [expand(text, variables) for text in texts]
