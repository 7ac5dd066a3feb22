"""Fenced code blocks of the project's documents, and the commands in them, for the tests of the documentation."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
SHELLS = ("bash", "sh", "console")
_FENCE = re.compile(r"^( *)```(.*)$")
_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its fence."""

    path: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One simple command: a pipeline gives several."""

    where: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where} {' '.join(self.words)[:60]}"


def documents() -> list[Path]:
    """Every Markdown file that a reader is sent to."""
    folders = (ROOT / name for name in ("docs", "charts", "examples", "images", "bench"))
    return [*sorted(ROOT.glob("*.md")), *(path for folder in folders for path in sorted(folder.rglob("*.md")))]


def blocks() -> list[Block]:
    found: list[Block] = []
    for path in documents():
        name = str(path.relative_to(ROOT))
        start, language, indent, lines = 0, "", "", []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fence = _FENCE.match(line)
            if fence is None:
                lines.append(line.removeprefix(indent))
            elif start:
                found.append(Block(name, start, language, "\n".join(lines) + "\n"))
                start = 0
            else:
                start, indent, language, lines = number, fence[1], fence[2].strip(), []
        assert not start, f"{name}:{start}: a fence without its end"
    return found


def commands() -> list[Command]:
    """Commands of all shell blocks. In a `console` block they are the lines after `$ `; the rest is output."""
    found: list[Command] = []
    for block in blocks():
        if block.language.split(" ")[0] in SHELLS:
            for line in _lines(block):
                found += [Command(str(block), words) for words in _simple(line)]
    return found


def _lines(block: Block) -> list[str]:
    text = block.text.replace("\\\n", " ")
    lines = text.splitlines()
    if block.language.startswith("console"):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    kept: list[str] = []
    end = None
    for line in lines:
        if end is not None:
            end = None if line.strip() == end else end
            continue
        kept.append(line)
        heredoc = _HEREDOC.search(line)
        end = heredoc[1] if heredoc else None
    return [line for line in kept if line.strip() and not line.lstrip().startswith("#")]


def _simple(line: str) -> list[tuple[str, ...]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[tuple[str, ...]] = []
    words: list[str] = []
    skip = False
    for token in lexer:
        if token.strip("|&;()") == "":
            found.append(tuple(words))
            words, skip = [], False
        elif token.strip("<>&") == "":
            skip = True
        elif skip:
            skip = False
        else:
            words.append(token)
    found.append(tuple(words))
    return [_without_variables(each) for each in found if _without_variables(each)]


def _without_variables(words: tuple[str, ...]) -> tuple[str, ...]:
    kept = list(words)
    while kept and re.fullmatch(r"(\w+=.*|export|sudo|time)", kept[0]):
        kept.pop(0)
    return tuple(kept)
