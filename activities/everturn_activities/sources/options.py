"""Source `options`: what an agent's `prompt_options` say."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.sources import Asked


async def options(asked: Asked) -> Sequence[Item]:
    """The option that `options.name` names.

    `output_style` is one of the texts in `options.styles`; a text of the agent's own wins.
    """
    name = str(asked.layer.options.get("name", ""))
    said = asked.spec.agent.prompt_options
    text = getattr(said, name, "")
    if name == "output_style" and text:
        styles = asked.layer.options.get("styles", {})
        if not said.custom_output_style_prompt and text not in styles:
            known = ", ".join(styles) or "none"
            asked.warn(
                f"Agent {asked.spec.agent.name!r} asks for the output style {text!r}, which profile"
                f" {asked.spec.profile.name!r} has not; its styles are {known}."
            )
        text = styles.get(text, "")
    if name == "output_style":
        text = said.custom_output_style_prompt or text
    return ({"text": text},) if text else ()
