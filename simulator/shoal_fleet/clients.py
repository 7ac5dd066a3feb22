"""Clients in virtual time: arrivals at their times, conversations closed-loop, as `shoal replay` drives them.

Closed loop: a turn starts when the one before has ended plus its think time. Sub-agents run beside their parent; a
parent turn waits for those that had ended before it in the recording.
"""

import functools
import random
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from shoal_fleet.clock import Clock
from shoal_fleet.fleet import Done, Outcome
from shoal_fleet.workload import Arrival, Conversation, Job, SubAgent, Turn, Workload


class Server(Protocol):
    """Who takes the requests: a fleet, or what one is measured against."""

    clock: Clock

    def submit(self, job: Job, done: Done) -> None: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast, and how much."""

    speed: float = 1.0
    """Divides the gaps between arrivals, and think times. Engines keep their own speed."""
    sessions: int | None = None
    """Conversations at once; None: all of them."""
    think_max_s: float | None = None
    """Longest think time, before the speed."""
    ramp_s: float = 0.0
    """Sessions start over so many seconds."""
    duration_s: float | None = None
    """No request starts after it."""
    shuffle_seed: int | None = None
    """Order of conversations; None: that of the trace."""


class Clients:
    """One workload against one fleet."""

    def __init__(self, fleet: Server, workload: Workload, pace: Pace) -> None:
        self.fleet = fleet
        self.pace = pace
        self._arrivals = deque(workload.arrivals)
        self._conversations = deque(workload.conversations)

    def start(self) -> None:
        self._next_arrival()
        if self.pace.shuffle_seed is not None:
            order = list(self._conversations)
            random.Random(self.pace.shuffle_seed).shuffle(order)
            self._conversations = deque(order)
        count = len(self._conversations) if self.pace.sessions is None else self.pace.sessions
        for place in range(min(count, len(self._conversations))):
            self.fleet.clock.after(self.pace.ramp_s * place / max(1, count), self.next_conversation)

    @property
    def over(self) -> bool:
        """No request starts any more."""
        duration_s = self.pace.duration_s
        return duration_s is not None and self.fleet.clock.now_s >= duration_s

    def next_conversation(self) -> None:
        """A session takes another conversation when it has done one."""
        if self._conversations and not self.over:
            _Session(self, self._conversations.popleft()).start()

    def pause_s(self, turn: Turn) -> float:
        think_s = turn.think_s if self.pace.think_max_s is None else min(turn.think_s, self.pace.think_max_s)
        return think_s / self.pace.speed

    def _next_arrival(self) -> None:
        if self._arrivals:
            arrival = self._arrivals.popleft()
            self.fleet.clock.at(arrival.at_s / self.pace.speed, lambda: self._arrive(arrival))

    def _arrive(self, arrival: Arrival) -> None:
        if not self.over:
            self._next_arrival()
            self.fleet.submit(arrival.job, _nothing)


def _nothing(outcome: Outcome) -> None:
    """Nobody waits for an arrival."""


class _Session:
    """One conversation with its sub-agents."""

    def __init__(self, clients: Clients, conversation: Conversation) -> None:
        self._clients = clients
        self._conversation = conversation
        self._running: list[SubAgent] = []
        self._blocked: int | None = None
        self._done = False

    def start(self) -> None:
        self._spawn(-1)
        self._turn(0)

    def _spawn(self, after: int) -> None:
        clients = self._clients
        for agent in self._conversation.subagents:
            if agent.after == after and agent.turns:
                self._running.append(agent)
                delay_s = agent.delay_s / clients.pace.speed
                clients.fleet.clock.after(delay_s, functools.partial(self._agent_turn, agent, 0))

    def _turn(self, index: int) -> None:
        if index == len(self._conversation.turns):
            self._done = True
            self._settle()
        elif any(agent.joined_by == index for agent in self._running):
            self._blocked = index
        else:
            clients, turn = self._clients, self._conversation.turns[index]
            clients.fleet.clock.after(clients.pause_s(turn), lambda: self._send(index))

    def _send(self, index: int) -> None:
        def ended(outcome: Outcome) -> None:
            self._spawn(index)
            self._turn(index + 1)

        if not self._clients.over:
            self._clients.fleet.submit(self._conversation.turns[index].job, ended)

    def _agent_turn(self, agent: SubAgent, index: int) -> None:
        if index == len(agent.turns):
            self._running = [one for one in self._running if one is not agent]
            if self._blocked is not None:
                index, self._blocked = self._blocked, None
                self._turn(index)
            self._settle()
            return
        clients, turn = self._clients, agent.turns[index]

        def send() -> None:
            if not clients.over:
                clients.fleet.submit(turn.job, lambda outcome: self._agent_turn(agent, index + 1))

        clients.fleet.clock.after(clients.pause_s(turn), send)

    def _settle(self) -> None:
        if self._done and not self._running:
            self._done = False
            self._clients.next_conversation()
