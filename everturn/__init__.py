"""The domain of Everturn: plain data and pure functions."""

from everturn.agents import Agent
from everturn.errors import ToolFailed
from everturn.tools import Effect, Tool, ToolContext, tool

__all__ = ["Agent", "Effect", "Tool", "ToolContext", "ToolFailed", "tool"]
