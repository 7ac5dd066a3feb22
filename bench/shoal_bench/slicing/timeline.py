"""One replica's time around one cold prompt, without slices and with them: data of two real runs.

What the engine computes is from its own trace of steps, what users see from the client's token times. Kept in
slicing-timeline.json, drawn by `drawing`. Called by `__main__`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from shoal_bench.slicing import engine, load, routers, runs
from shoal_bench.slicing.load import Load
from shoal_bench.slicing.play import Played, Sent

LOAD: Final = Load(measured_s=9.0, cold_every_s=60.0)
"""One cold prompt, at the start of the measured time."""
SEED: Final = 3
FROM_S, UNTIL_S = -0.8, 7.2
"""Of what is drawn, from when the cold prompt is sent."""
SHOWN_SESSIONS: Final = 10
CAUGHT_SESSIONS: Final = 3
"""Of these, with a stream that runs when the cold prompt comes, where there are so many."""
JOINED_S: Final = 0.005
"""Steps of one kind that are so near are one block."""
STREAM_GAP_S: Final = 0.1
"""A stream whose tokens are so near runs."""

Span = tuple[float, float]
"""From and until, in seconds from when the cold prompt is sent."""


@dataclass(frozen=True, slots=True)
class Turn:
    """`waited`: from sending to the first token; `running`: while tokens came."""

    waited: Span
    running: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """Of one run."""

    router: str
    cold: tuple[Span, ...]
    """When the engine computed the cold prompt."""
    warm: tuple[Span, ...]
    """When it computed prompts of turns."""
    decode: tuple[Span, ...]
    cold_turn: Turn
    sessions: tuple[tuple[Turn, ...], ...]
    slices: int
    ttft_s_mean: float
    """Of the turns that were sent while the cold prompt had no first token, of all sessions."""
    silence_s_max: float
    """Of all sessions' streams, in what is drawn."""


@dataclass(frozen=True, slots=True)
class Step:
    ended_s: float
    seconds: float
    pieces: tuple[tuple[str, int, int], ...]
    decoding: int


def take(folder: Path, programs: routers.Programs) -> list[Picture]:
    """Runs both. Raises one of `runs.LEFT_OUT`."""
    made = []
    for name in (routers.WHOLE, routers.SHOAL):
        trace = folder / f"trace-{name}.jsonl"
        trace.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        module = ("shoal_bench.slicing.traced", str(trace))
        with engine.simulated(folder, module) as behind:
            bench = runs.Bench(behind, folder, programs)
            played, _, _ = bench.played(routers.ROUTERS[name], LOAD, SEED)
        made.append(picture(name, played, steps(trace.read_text().splitlines()), cold_mark(behind.model)))
    return made


def cold_mark(model: str) -> str:
    body = json.loads(load.cold(LOAD, model, SEED, 0).body(1))
    return load.mark(body["input_ids"])


def steps(lines: Iterable[str]) -> list[Step]:
    """A last line that was cut short by the engine's end is left out."""
    found = []
    for line in lines:
        if line.endswith("]"):
            ended_s, seconds, pieces, decoding = json.loads(line)
            found.append(
                Step(ended_s, seconds, tuple((mark, tokens, before) for mark, tokens, before in pieces), decoding)
            )
    return found


def picture(router: str, played: Played, traced_steps: Sequence[Step], mark: str) -> Picture:
    """Raises ValueError where the run has no good cold prompt."""
    colds = [one for one in played.sent if one.cold and one.answer.error is None]
    if not colds:
        raise ValueError(f"{router}: the cold prompt was not answered")
    zero_s = colds[0].answer.sent_s
    first_s = colds[0].answer.token_s[0]
    warm = [one for one in (*played.lead_in, *played.sent) if not one.cold and one.answer.error is None]
    during = [one for one in warm if zero_s <= one.answer.sent_s < first_s]
    waits = [one.answer.token_s[0] - one.answer.sent_s for one in during]
    kinds: dict[str, list[Span]] = {"cold": [], "warm": [], "decode": []}
    for step in traced_steps:
        kinds[_kind(step, mark)].append((step.ended_s - step.seconds - zero_s, step.ended_s - zero_s))
    return Picture(
        router=router,
        cold=joined(kinds["cold"]),
        warm=joined(kinds["warm"]),
        decode=joined(kinds["decode"]),
        cold_turn=_turn(colds[0], zero_s),
        sessions=tuple(
            tuple(_turn(one, zero_s) for one in warm if one.number == number and _seen(one, zero_s))
            for number in shown(warm, zero_s)
        ),
        slices=_slices(traced_steps, mark),
        ttft_s_mean=sum(waits) / len(waits) if waits else 0.0,
        silence_s_max=max(
            (
                after - before
                for one in warm
                for before, after in pairwise(one.answer.token_s)
                if zero_s + FROM_S <= after and before <= zero_s + UNTIL_S
            ),
            default=0.0,
        ),
    )


def shown(warm: Sequence[Sent], zero_s: float) -> list[int]:
    """Numbers of the sessions that are drawn."""
    caught = {
        one.number for one in warm if one.answer.token_s[0] < zero_s < zero_s + STREAM_GAP_S < one.answer.token_s[-1]
    }
    first = sorted(caught)[:CAUGHT_SESSIONS]
    others = (number for number in range(LOAD.sessions) if number not in first)
    return sorted([*first, *islice(others, SHOWN_SESSIONS - len(first))])


def joined(spans: Sequence[Span], gap_s: float = JOINED_S) -> tuple[Span, ...]:
    """Spans in order, those one that have no more than `gap_s` between them, cut to what is drawn."""
    made: list[Span] = []
    for began_s, ended_s in spans:
        if ended_s < FROM_S or began_s > UNTIL_S:
            continue
        began_s, ended_s = max(began_s, FROM_S), min(ended_s, UNTIL_S)
        if made and began_s - made[-1][1] <= gap_s:
            began_s = made.pop()[0]
        made.append((round(began_s, 4), round(ended_s, 4)))
    return tuple(made)


def write(path: Path, made: Sequence[Picture]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(asdict(one)) for one in made) + "\n]\n")


def read(path: Path) -> list[Picture]:
    """Empty where there is no file."""
    if not path.exists():
        return []
    return [_picture_of(one) for one in json.loads(path.read_text())]


def _picture_of(found: dict[str, object]) -> Picture:
    def spans(value: object) -> tuple[Span, ...]:
        assert isinstance(value, list)
        return tuple((one[0], one[1]) for one in value)

    def turn(value: object) -> Turn:
        assert isinstance(value, dict)
        return Turn(spans([value["waited"]])[0], spans(value["running"]))

    sessions = found["sessions"]
    assert isinstance(sessions, list)
    parts = {name: spans(found[name]) for name in ("cold", "warm", "decode")}
    rest = {name: found[name] for name in ("router", "slices", "ttft_s_mean", "silence_s_max")}
    read_sessions = tuple(tuple(turn(one) for one in session) for session in sessions)
    return Picture(cold_turn=turn(found["cold_turn"]), sessions=read_sessions, **parts, **rest)  # type: ignore[arg-type]


def _kind(step: Step, mark: str) -> str:
    """Of a step that computes prompts of both kinds, the one with more tokens."""
    if not step.pieces:
        return "decode"
    cold = sum(tokens for found, tokens, _ in step.pieces if found == mark)
    return "cold" if 2 * cold >= sum(tokens for _, tokens, _ in step.pieces) else "warm"


def _slices(traced_steps: Sequence[Step], mark: str) -> int:
    """Parts of the cold prompt with something else between them: one where it was computed in one go."""
    kinds = [_kind(one, mark) == "cold" for one in traced_steps]
    return sum(now and not before for before, now in pairwise([False, *kinds]))


def _turn(one: Sent, zero_s: float) -> Turn:
    times = [at - zero_s for at in one.answer.token_s]
    return Turn(
        (round(one.answer.sent_s - zero_s, 4), round(times[0], 4)),
        joined([(at, at) for at in times], STREAM_GAP_S),
    )


def _seen(one: Sent, zero_s: float) -> bool:
    return one.answer.sent_s - zero_s < UNTIL_S and one.answer.token_s[-1] - zero_s > FROM_S
