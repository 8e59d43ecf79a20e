"""Who can be asked in a session."""

from pathlib import Path

from everturn.views import AgentPage, AgentView, SessionView


def roster(session: SessionView) -> AgentPage:
    """The visible agents of the session's workspace. Reads files; raises WorkspaceError."""
    from everturn_activities.workspace import load

    workspace = load(Path(session.workspace))
    agents = (workspace.agent(name) for name in workspace.agents)
    return AgentPage(
        agents=tuple(
            AgentView(
                name=agent.name,
                title=agent.title,
                description=agent.description,
                color=agent.color,
            )
            for agent in agents
            if agent.visible
        )
    )
