"""Files that cannot be used, with the processes and the commands that people run."""

import json
import os
from pathlib import Path

from preloaded import Preloaded
from systems import CLI, System

SCRIPT = {"replies": [{"calls": [{"name": "list_files"}]}, {"text": "All is well."}]}
BOMB = "---\na: &a [x, x]\nb: [*a, *a]\n---\n"
CIRCLE = "is a symbolic link that leads back to itself; remove it."
TOO_LONG = "has 104,857,600 bytes and the limit is 1,048,576, so it is left out; shorten it."
CUT = (
    "has 104,857,600 bytes and the limit is 262,144, so only its beginning and its end are told;"
    " shorten it, or raise the layer's option bytes_max."
)
BINARY = "is not a text file, as it has NUL bytes; it is left out."
LATIN = "line 1 is not valid UTF-8, so it is left out; save it as UTF-8."
TOLD = {
    "krill": (
        f"context/SOUL.md {CUT}",
        f"context/USER.md {BINARY}",
        f"context/TOOLS.md {LATIN}",
        "The skill context/skills/bomb/SKILL.md line 3 uses the YAML alias '*a', and aliases are"
        " not read; write the value itself.",
        "The skill context/skills/open/SKILL.md begins a front matter in line 1 that no line '---'"
        " ends; add one.",
        "Skill 'same' is defined twice: context/skills/one/SKILL.md counts, and"
        " context/skills/two/SKILL.md does not; rename or remove one of them.",
        f"The skill context/skills/circle {CIRCLE}",
    ),
    "eggent": (
        f"prompts/system.md {TOO_LONG}",
        f"prompts/tool-read_file.md {BINARY}",
        f"prompts/tool-edit_file.md {LATIN}",
        f"prompts/tool-write_file.md {CIRCLE}",
    ),
    "kiro": (
        f"context/SOUL.md {CUT}",
        f"context/USER.md {BINARY}",
        f"context/TOOLS.md {LATIN}",
        f"context/circle.md {CIRCLE}",
    ),
}


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def long(path: Path) -> None:
    """100 MB of text as far as anybody looks, most of which take no room on the disk."""
    write(path, "x" * 100_000)
    os.truncate(path, 100 * 1024 * 1024 - 100_000)
    with path.open("a") as file:
        file.write("x" * 100_000)


def bad_files(workspace: Path) -> None:
    context, prompts = workspace / "context", workspace / "prompts"
    write(context / "AGENTS.md", "Be kind.")
    long(context / "SOUL.md")
    write(context / "USER.md", b"\x7fELF\0")
    write(context / "TOOLS.md", b"na\xefve")
    (context / "circle.md").symlink_to("circle.md")
    skills = context / "skills"
    write(skills / "bomb" / "SKILL.md", BOMB)
    write(skills / "open" / "SKILL.md", "---\ndescription: never ends\n")
    for name in ("one", "two"):
        write(skills / name / "SKILL.md", f"---\nname: same\ndescription: {name}.\n---\n")
    (skills / "circle").symlink_to("circle")
    long(prompts / "system.md")
    write(prompts / "tool-read_file.md", b"\x7fELF\0")
    write(prompts / "tool-edit_file.md", b"na\xefve")
    (prompts / "tool-write_file.md").symlink_to("tool-write_file.md")
    for profile in TOLD:
        keys = f"profile: {profile}\nresources: ['file://context/*.md']\n"
        write(workspace / "agents" / f"{profile}.md", f"---\n{keys}---\nBe brief.\n")


async def test_each_file_that_cannot_be_used_is_named_and_the_turn_goes_on(
    tmp_path: Path, temporal: Path, preloaded: Preloaded
) -> None:
    """A document of 100 MB, a binary, another encoding, a YAML bomb, a front matter without an
    end, two skills of one name, and links in a circle; for three agents at once."""
    system = System(tmp_path, temporal, preloaded, {}, "auto", {})
    (system.folder / "script.json").write_text(json.dumps(SCRIPT))
    bad_files(system.workspace)
    try:
        await system.start()
        for profile, expected in TOLD.items():
            arguments = (CLI, "run", "Go on.", "--agent", profile)
            command = system.program(profile, arguments, system.api.environment)
            await command.launch()
            code = await command.ended(60)
            shown = command.log.lines()
            assert code == 0, shown
            told = [line.partition("  ")[2] for line in shown if line.startswith("status")]
            # What is left of them makes a long prompt, which is told too.
            told = [line for line in told if not line.startswith("The prompt takes ")]
            assert sorted(told) == sorted(expected)
            assert "All is well." in shown
            assert not any("Traceback" in line for line in shown)
    finally:
        await system.end()
