"""Profiles: profiles list, show, check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everturn_workers.cli import options

if TYPE_CHECKING:
    from everturn.profile import Layer, Profile

ProfileName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]


def add_to(app: typer.Typer) -> None:
    profiles = typer.Typer(
        help="How contexts are composed: ours, and those of the workspace.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    profiles.command("list")(list_profiles)
    profiles.command("show")(show_profile)
    profiles.command("check")(check_profiles)
    app.add_typer(profiles, name="profiles")


def list_profiles(workspace: options.Workspace = None, json: options.Json = False) -> None:
    """All profiles; the workspace's own win over ours."""
    from rich.text import Text

    from everturn_activities.profiles import load_profile, profile_names, workspace_profiles
    from everturn_workers.cli.sessions import new_table, print_table
    from everturn_workers.cli.show import print_json, printable

    root = _workspace(workspace)
    own = {} if root is None else workspace_profiles(root)
    shown = new_table("profile", "from", "mode", "layers>", "description")
    for name in profile_names(root):
        profile = load_profile(name, root)
        place = f"profiles/{name}.toml" if name in own else "built in"
        mode, layers = profile.recipe.mode, len(profile.recipe.layers)
        if json:
            told = {"name": name, "from": place, "mode": mode, "layers": layers}
            print_json({**told, "description": profile.description})
        else:
            description = Text(printable(" ".join(profile.description.split())))
            shown.add_row(Text(printable(name)), place, mode, str(layers), description)
    if not json:
        print_table(shown)


def show_profile(
    name: ProfileName,
    workspace: options.Workspace = None,
    json: options.Json = False,
    toml: Annotated[
        bool, typer.Option("--toml", help="Its file, as a beginning for one of your own.")
    ] = False,
) -> None:
    """A profile: its layers in their order, and what its agents begin with."""
    from everturn_activities.profiles import load_profile, profile_file
    from everturn_workers.cli.show import print_json, printable

    root = _workspace(workspace)
    profile = load_profile(name, root)
    if toml:
        print(printable(profile_file(name, root).read_text()), end="")
    elif json:
        print_json(profile.model_dump())
    else:
        _show(profile)


def check_profiles(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="By default all of the workspace.", exists=False),
    ] = None,
    workspace: options.Workspace = None,
) -> None:
    """Say whether profiles can be used, or what is wrong in which line."""
    from everturn.errors import WorkspaceError
    from everturn_activities.profiles import read_profile, workspace_profiles
    from everturn_activities.workspace import load
    from everturn_workers.cli.show import printable

    loaded = None
    if file is not None:
        files = [file]
    else:
        root = options.workspace_of(options.read(workspace=workspace), Path.cwd())
        loaded = load(root)
        files = list(workspace_profiles(root).values())
        if not files:
            typer.echo(f"{root / 'profiles'} has no profile; ours are in use.", err=True)
    wrong = 0
    for path in files:
        try:
            profile = read_profile(path)
            if loaded is not None:
                loaded.shown(profile)  # Its aliases are of tools that are there.
        except WorkspaceError as error:
            wrong += 1
            typer.echo(printable(str(error)), err=True)
        else:
            print(f"{printable(str(path))}: {len(profile.recipe.layers)} layers, can be used.")
    if wrong:
        raise typer.Exit(2)


def _workspace(named: Path | None) -> Path | None:
    """The workspace whose profiles count too; None where there is none and none is named."""
    settings = options.read(workspace=named)
    if settings.workspace is None:
        return options.nearest_workspace(Path.cwd(), settings.home)
    return options.workspace_of(settings, Path.cwd())


def _show(profile: "Profile") -> None:
    from everturn_workers.cli.sessions import new_table, one_line, print_table

    recipe = profile.recipe
    where = {"system": "a system prompt", "pair": "a message and its acknowledgement"}
    print(f"{profile.name}: {profile.description}\n")
    print(f"The context is {where[recipe.mode]}; {recipe.separator!r} stands between layers.")
    shown = new_table("layer", "source", "for each", "frame", "title")
    for layer in recipe.layers:
        frame = "" if layer.frame == "none" else layer.frame
        shown.add_row(layer.id, layer.source, layer.scope, frame, one_line(_heading(layer)))
    print_table(shown)
    for alias, name in profile.aliases.items():
        print(f"Tool {name} is shown as {alias}.")
    if profile.agent:
        print("Agents begin with:")
        for key, value in profile.agent.items():
            print(f"  {key} = {value!r}")


def _heading(layer: "Layer") -> str:
    return layer.title or layer.header
