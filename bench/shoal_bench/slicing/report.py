"""From rows and details to the generated part of docs/benchmarks/slicing.md. Pure.

Tables show medians over rounds; where there are several, the least and the greatest beside what targets name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shoal_bench import results, tables
from shoal_bench.slicing import engine, pictures, runs, targets
from shoal_bench.slicing.detail import Detail
from shoal_bench.slicing.load import Kind
from shoal_bench.slicing.routers import ROUTERS

COMMAND: Final = "make bench-slicing"
_COLUMNS: Final[Sequence[tuple[str, str, bool]]] = (
    ("warm TTFT mean, s", "warm_ttft_s_mean", True),
    ("p50", "warm_ttft_s_p50", False),
    ("p99", "warm_ttft_s_p99", True),
    ("longest silence, s", "silence_s_max", True),
    ("silences over 0.3 s", "silences_300ms", False),
    ("tokens/s a user", "warm_tokens_per_s", False),
    ("cold TTFT mean, s", "cold_ttft_s_mean", True),
    ("max", "cold_ttft_s_max", False),
    ("turns", "turns", False),
    ("cold prompts", "cold_prompts", False),
    ("slices", "slices", False),
    ("output tokens/s", "output_tokens_per_s", False),
    ("engine on prefill", "engine_prefill_share", False),
    ("failures", "failures", False),
)
"""Heading, measure, and whether the spread over rounds is shown."""
_SHARES: Final = frozenset(("engine_prefill_share", "engine_busy_share"))
_KINDS: Final[Mapping[Kind, str]] = {"ids": "token ids, `/generate`", "chat": "chat completions"}
STRAINED_SHARE: Final = 0.7
"""Of the machine, or of one core for a process: beyond it a run says something about the machine."""
DAGGER: Final = " †"


def text(rows: Sequence[results.Row], details: Mapping[str, Detail]) -> str:
    """The generated part of the document."""
    parts = ["### Targets", verdicts(rows)]
    for name, detail in details.items():
        parts += [f"### {_engine_title(name)}", _facts(detail)]
        for kind, title in _KINDS.items():
            if kind in detail["loads"]:
                found = detail["loads"][kind]
                parts += [f"#### {title}", load_table(rows, name, kind, found["routers"]), _about(found)]
        parts.append("\n\n".join(f"![{alt}]({file})" for file, alt in pictures.files(name, detail)))
        parts += [_machine_table(detail), _versions(detail)]
    return "\n\n".join(part for part in parts if part)


def _facts(detail: Detail) -> str:
    machine, engine_facts = results.describe(detail["machine"]), results.describe(detail["engine"])
    return f"Machine: {machine}.\n\nEngine: {engine_facts}."


def verdicts(rows: Sequence[results.Row]) -> str:
    lines = [
        (
            one.engine,
            one.target.measure,
            f"at most {one.target.ratio_max:g} of {one.target.against}",
            tables.number(one.ours),
            tables.number(one.theirs),
            f"{one.ratio:.2f}",
            "hit" if one.hit else "**missed**",
        )
        for one in targets.judge(rows)
    ]
    head = ("engine", "measure", "target", "Shoal", "theirs", "ratio", "")
    return tables.table(head, lines) if lines else "Not all of what the targets compare was run."


def load_table(rows: Sequence[results.Row], name: str, kind: Kind, found: Mapping[str, Any]) -> str:
    lines = []
    for router in ROUTERS:
        if router not in found:
            continue
        mark = DAGGER * _strained(found[router]["cpu_max"])
        cells = [_cell(rows, name, router, runs.named(kind, measure), spread) for _, measure, spread in _COLUMNS]
        lines.append((router + mark, *cells, str(found[router]["rounds"])))
    return tables.table(("router", *(heading for heading, _, _ in _COLUMNS), "rounds"), lines)


def _cell(rows: Sequence[results.Row], name: str, router: str, measure: str, spread: bool) -> str:
    found = results.select(rows, engine=name, router=router, measure=measure)
    if not found:
        return tables.MISSING
    row = found[0]
    share = any(measure.endswith(one) for one in _SHARES)

    def shown(value: float) -> str:
        return f"{value:.0%}" if share else tables.number(value)

    words = shown(row["value"])
    return f"{words} ({shown(row['min'])} to {shown(row['max'])})" if spread and "min" in row else words


def _about(found: Mapping[str, Any]) -> str:
    load = found["load"]
    errors = [
        f"{router}: {count} x {error}"
        for router, one in found["routers"].items()
        for error, count in one["errors"].items()
    ]
    said = (
        f"{load['sessions']} sessions of {load['context_tokens']:,} tokens, {load['turn_tokens']} more a turn and "
        f"{load['out_tokens']} out, thinking {load['think_min_s']:g} to {load['think_max_s']:g} s; a cold prompt of "
        f"{load['cold_tokens']:,} tokens every {load['cold_every_s']:g} s; {load['measured_s']:g} s a run."
    )
    return said + (f" Failures: {'; '.join(errors)}." if errors else "")


def _machine_table(detail: Detail) -> str:
    lines = []
    parts = ("machine", "router", "engine", "client")
    for kind, found in detail["loads"].items():
        for router, one in found["routers"].items():
            cpu = one["cpu_max"]
            cells = [f"{cpu[part]:.0%}" if part in cpu else tables.MISSING for part in parts]
            lines.append((kind, router, *cells, "yes" if _strained(cpu) else "no"))
    head = ("load", "router", "all cores", "router, of a core", "engine, of a core", "client, of a core", "strained")
    return "The most that was busy, over rounds:\n\n" + tables.table(head, lines)


def _versions(detail: Detail) -> str:
    return " · ".join(f"{name}: {version}" for name, version in detail["versions"].items())


def _strained(cpu: Mapping[str, float]) -> bool:
    return max(cpu.values(), default=0.0) > STRAINED_SHARE


def _engine_title(name: str) -> str:
    return "A simulated engine with the timing of an H200" if name == engine.SIMULATED else f"A real engine: {name}"
