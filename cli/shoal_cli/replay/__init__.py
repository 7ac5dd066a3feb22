"""Replay of recorded request traces against one OpenAI-compatible endpoint, closed-loop or by timestamps."""
