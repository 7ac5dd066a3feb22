"""From a trace to a workload of the fleet simulator: the same prompts that `shoal replay` would send, as block ids.

Pure; called by the command and by benchmarks, so that a simulated and a real run have one definition of their load.
"""

from array import array
from collections.abc import Sequence

from shoal_cli.replay import prompt, trace
from shoal_fleet import workload


def of_trace(read: trace.Trace, *, turns_max: int | None = None, subagents: bool = True) -> workload.Workload:
    """`turns_max`: so many turns of each conversation."""
    return workload.Workload(
        arrivals=tuple(
            workload.Arrival(one.at_s, _arrival_job(number, one)) for number, one in enumerate(read.arrivals)
        ),
        conversations=tuple(_conversation(one, turns_max, subagents) for one in read.conversations),
    )


def _arrival_job(number: int, arrival: trace.Arrival) -> workload.Job:
    turn = arrival.turn
    return workload.Job(
        turn.blocks,
        trace.MOONCAKE_BLOCK_TOKENS,
        turn.input_tokens,
        turn.output_tokens,
        session=workload.key_of(f"request-{number}"),
    )


def _conversation(one: trace.Conversation, turns_max: int | None, subagents: bool) -> workload.Conversation:
    turns = one.turns[:turns_max]
    agents = [agent for agent in one.subagents if subagents and agent.after < len(turns) and agent.turns]
    return workload.Conversation(
        one.name,
        _turns(one, one.name, turns, None),
        tuple(
            workload.SubAgent(
                agent.after,
                agent.joined_by,
                agent.delay_s,
                _turns(one, f"{one.name}/{agent.name}", agent.turns[:turns_max], one.name),
            )
            for agent in agents
        ),
    )


def _turns(
    one: trace.Conversation, session: str, turns: Sequence[trace.Turn], parent: str | None
) -> tuple[workload.Turn, ...]:
    tails = prompt.plan_tails(turns)
    scope, key = workload.key_of(one.name), workload.key_of(session)
    above = None if parent is None else workload.key_of(parent)
    made = []
    for place, (turn, tail) in enumerate(zip(turns, tails, strict=True)):
        blocks = _whole(turn, tail, one.block_tokens, workload.key_of(f"{session} {place}"))
        job = workload.Job(blocks, one.block_tokens, turn.input_tokens, turn.output_tokens, scope, key, above)
        made.append(workload.Turn(job, turn.think_s))
    return tuple(made)


def _whole(turn: trace.Turn, tail: int | None, block_tokens: int, alone: int) -> "array[int]":
    """The turn's blocks and what stands for the loose tokens after them: the next turn's block where it is known."""
    missing = -(-turn.input_tokens // block_tokens) - len(turn.blocks)
    if missing <= 0:
        return turn.blocks
    if tail is not None and missing == 1:
        return turn.blocks + array("Q", [tail])
    return turn.blocks + array("Q", [(alone + place) % (1 << 64) for place in range(missing)])
