"""Profiles: those that come with us, and a workspace's own, which win over them."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from everturn.agents import Agent, PromptOptions
from everturn.errors import WorkspaceError
from everturn.profile import Layer, Profile
from everturn_activities.definitions import meant, place_of, read_toml, validated
from everturn_activities.sources.facts import FACTS

DEFAULT_PROFILE = "default"

SOURCES = (
    *("text", "agent_prompt", "file", "identity", "capabilities", "tool_prompts", "project"),
    *("runtime", "datetime", "facts", "options", "managed", "boundary"),
    *("skills", "always_skills", "active_skill"),
    *("documents", "agents_md", "files", "spawn_hooks"),
    *("memory", "knowledge", "summary"),
)
"""What a layer may be made of."""

OPTIONS = {
    **dict.fromkeys(("text", "agent_prompt", "boundary", "capabilities", "project"), ()),
    **dict.fromkeys(("runtime", "managed"), ()),
    "file": ("path",),
    "identity": ("primary", "subordinate"),
    "tool_prompts": ("folder",),
    "datetime": ("timezone",),
    "facts": ("names", "timezone"),
    "options": ("name", "styles"),
}
"""The options of sources that read them; those of others are their own to judge."""

CHOICES = {"options": ("name", tuple(PromptOptions.model_fields)), "facts": ("names", FACTS)}
"""Which option of a source chooses, and from what."""

_NOT_FOR_ALL = ("name", "profile")
"""Fields of an agent that no profile can say for all of them."""


def profile_names(workspace: Path | None) -> tuple[str, ...]:
    """Ours, then those that only the workspace has."""
    own = () if workspace is None else workspace_profiles(workspace)
    return tuple(sorted(_built_in())) + tuple(n for n in own if n not in _built_in())


def workspace_profiles(workspace: Path) -> dict[str, Path]:
    """The files of a workspace's own profiles, by their names."""
    return {path.stem: path for path in sorted((workspace / "profiles").glob("*.toml"))}


def load_profile(name: str, workspace: Path | None = None) -> Profile:
    """The workspace's profile of that name, else ours.

    Raises WorkspaceError: one sentence with the file, the line where one is known, and the
    mend.
    """
    path = profile_file(name, workspace)
    return _built_in_profile(name) if path == _built_in().get(name) else read_profile(path)


def profile_file(name: str, workspace: Path | None = None) -> Path:
    """Where the profile of that name stands."""
    own = {} if workspace is None else workspace_profiles(workspace)
    path = own.get(name) or _built_in().get(name)
    if path is not None:
        return path
    known = profile_names(workspace)
    where = "" if workspace is None else f" in {workspace}"
    raise WorkspaceError(
        f"There is no profile {name!r}{where}{meant(name, known)}; the profiles are"
        f" {', '.join(known)}, and profiles/{name}.toml would be another."
    )


def read_profile(path: Path) -> Profile:
    """The profile in a file, which is named as the file is."""
    return _checked(*read_toml(path), path)


def alias_place(name: str, alias: str, workspace: Path) -> str:
    """Where a profile gives a tool that alias."""
    path = profile_file(name, workspace)
    return place_of(path, read_toml(path)[1], ("aliases", alias))


@cache
def _built_in() -> Mapping[str, Path]:
    folder = Path(str(files("everturn") / "profiles"))
    return {path.stem: path for path in folder.glob("*.toml")}


@cache
def _built_in_profile(name: str) -> Profile:
    return read_profile(_built_in()[name])


def _checked(values: dict[str, Any], text: str, path: Path) -> Profile:
    if values.setdefault("name", path.stem) != path.stem:
        raise WorkspaceError(
            f"{place_of(path, text, ['name'])} calls its profile {values['name']!r}, and by its"
            f" file it is {path.stem!r}; leave the name out, or rename the file."
        )
    profile = validated(Profile, values, path, text)
    for number, layer in enumerate(profile.recipe.layers):
        wrong = _wrong(layer)
        if wrong is not None:
            key, what = wrong
            place = place_of(path, text, ("recipe", "layers", number, key))
            raise WorkspaceError(f"{place}: layer {layer.id!r} {what}.")
    for key in _NOT_FOR_ALL:
        if key in profile.agent:
            raise WorkspaceError(
                f"{place_of(path, text, ('agent', key))}: a profile cannot say {key!r} for all of"
                " its agents; leave it out."
            )
    validated(Agent, dict(profile.agent), path, text, within=("agent",))
    return profile


def _wrong(layer: Layer) -> tuple[str, str] | None:
    """The key of a layer that cannot be used, and why."""
    if layer.source not in SOURCES:
        return "source", (
            f"has an unknown source {layer.source!r}{meant(layer.source, SOURCES)}; the sources"
            f" are {', '.join(SOURCES)}"
        )
    known = OPTIONS.get(layer.source)
    if known is None:
        return None
    for key in layer.options:
        if key not in known:
            has = f"its options are {', '.join(known)}" if known else "it has none"
            return "options", (
                f"gives source {layer.source!r} an unknown option {key!r}{meant(key, known)}; {has}"
            )
    key, choices = CHOICES.get(layer.source, ("", ()))
    chosen = layer.options.get(key, ())
    for one in [chosen] if isinstance(chosen, str) else chosen:
        if one not in choices:
            return "options", (
                f"asks for {one!r}, which source {layer.source!r} has not"
                f"{meant(str(one), choices)}; it has {', '.join(choices)}"
            )
    return None
