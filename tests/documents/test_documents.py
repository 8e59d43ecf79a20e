"""The documents, the nested AGENTS.md and the resources that a context is told of."""

import os
import tracemalloc

import pytest

from everturn.errors import WorkspaceError


def names(items):
    return [item["name"] for item in items]


def paths(items):
    return [item["path"] for item in items]


async def test_R5_documents_stand_in_their_order_and_missing_ones_are_passed_over(ask, sources):
    ask.write("context/USER.md", "Likes tea.")
    ask.write("context/AGENTS.md", "Be kind.")
    ask.write("context/NOTES.md", "Not asked for.")

    items = await ask(sources.documents)

    assert names(items) == ["AGENTS.md", "USER.md"]
    assert items[0]["text"] == "Be kind."
    assert ask.warnings == []


async def test_R7_the_names_that_are_set_say_which_documents_there_are_and_in_which_order(
    ask, sources
):
    for name in ("AGENTS.md", "NOTES.md", "SOUL.md"):
        ask.write(f"context/{name}", name)
    assert names(await ask(sources.documents, names=["SOUL.md", "NOTES.md"])) == [
        "SOUL.md",
        "NOTES.md",
    ]


async def test_blank_documents_are_passed_over(ask, sources):
    ask.write("context/AGENTS.md", " \n\n")
    assert await ask(sources.documents) == []


async def test_a_changed_document_is_read_again(ask, sources):
    file = ask.write("context/AGENTS.md", "Old.")
    await ask(sources.documents)
    file.write_text("Newer.")
    assert (await ask(sources.documents))[0]["text"] == "Newer."


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        (b"x" * 300_000 + b"\0" + b"x" * 100, "context/SOUL.md is not a text file, as it has NUL"
                                              " bytes; it is left out."),
        (b"\xff" * 300_000, "context/SOUL.md is not valid UTF-8, so it is left out; save it as"
                            " UTF-8."),
        (b"\x7fELF\0", "context/SOUL.md is not a text file, as it has NUL bytes; it is left out."),
        (b"one\ntw\xff", "context/SOUL.md line 2 is not valid UTF-8, so it is left out; save it as"
                         " UTF-8."),
    ],
)  # fmt: skip
async def test_a_document_that_cannot_be_read_is_told_and_the_others_are_there(
    ask, sources, content, warning
):
    ask.write("context/AGENTS.md", "Be kind.")
    ask.write("context/SOUL.md", content)
    assert names(await ask(sources.documents)) == ["AGENTS.md"]
    assert ask.warnings == [warning]


async def test_a_link_to_a_document_that_is_gone_is_told(ask, sources):
    ask.write("context/AGENTS.md", "Be kind.")
    (ask.folder / "context" / "SOUL.md").symlink_to("gone.md")
    assert names(await ask(sources.documents)) == ["AGENTS.md"]
    assert ask.warnings == ["context/SOUL.md is a symbolic link that leads nowhere; remove it."]


async def test_of_a_document_of_100_MB_the_beginning_and_the_end_are_told(ask, sources):
    """Both cuts go through a character of two bytes, and neither leaves half of it."""
    file = ask.write("context/SOUL.md", "B" + "\u00e9" * 40_000)
    with file.open("r+b") as written:
        # All of the gap is NUL bytes, which nobody reads.
        written.seek(100_000_000)
        written.write("\u00e9".encode() * 20_000 + b"End")

    tracemalloc.start()
    (item,) = await ask(sources.documents)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    head, note, tail = item["text"].partition(
        "\n[... 99,974,467 of 100,040,003 bytes left out here ...]\n"
    )
    assert note
    assert head == "B" + "\u00e9" * 16_383
    assert tail == "\u00e9" * 16_382 + "End"
    assert peak < 2_000_000
    assert ask.warnings == [
        "context/SOUL.md has 100,040,003 bytes and the limit is 262,144, so only its beginning and"
        " its end are told; shorten it, or raise the layer's option bytes_max."
    ]


async def test_files_are_told_as_long_as_they_fit_together(ask, sources):
    for name in "abcdef":
        ask.write(f"docs/{name}.md", "x" * 100_000)
    ask.write("docs/small.md", "Would fit.")
    ask.resources = ("file://docs/*.md",)

    assert names(await ask(sources.files)) == ["a.md", "b.md"]
    assert ask.warnings == [
        "The files of layer layer have more than 262,144 bytes together, so docs/c.md, docs/d.md,"
        " docs/e.md and 2 more are left out; name fewer, or raise the layer's option bytes_max."
    ]
    assert len(await ask(sources.files, bytes_max=600_010)) == 7
    # One that was cut is whole where the limit is raised.
    ask.resources = ("file://long.txt",)
    ask.write("long.txt", "\u00e9" * 150_000)
    (cut,) = await ask(sources.files)
    (whole,) = await ask(sources.files, bytes_max=300_000)
    assert len(cut["text"]) < 33_000
    assert whole["text"] == "\u00e9" * 150_000
    # Bytes are counted, and not characters.
    ask.write("more.txt", "\u00e9" * 100_000)
    ask.resources = ("file://long.txt", "file://more.txt")
    assert names(await ask(sources.files, bytes_max=400_000)) == ["long.txt"]
    with pytest.raises(WorkspaceError, match="bytes_max = 5; give a number from 65,536 to"):
        await ask(sources.files, bytes_max=5)


async def test_a_document_that_links_to_itself_or_that_anybody_may_write_is_told(ask, sources):
    soul = ask.write("context/SOUL.md", "x")
    soul.unlink()
    soul.symlink_to(soul)
    ask.write("context/USER.md", "Obey me.").chmod(0o666)
    assert await ask(sources.documents) == []
    first, second = ask.warnings
    assert first == ("context/SOUL.md is a symbolic link that leads back to itself; remove it.")
    assert second.startswith("context/USER.md may be written by every user")


async def test_each_AGENTS_md_down_to_the_working_folder_is_told_the_nearest_last(ask, sources):
    ask.write("AGENTS.md", "Top.")
    ask.write("shop/AGENTS.md", "Shop.")
    ask.write("shop/till/AGENTS.md", "Till.")
    ask.write("shop/other/AGENTS.md", "Not on the way.")
    ask.working_dir = ask.folder / "shop" / "till"

    items = await ask(sources.agents_md)

    assert paths(items) == ["AGENTS.md", "shop/AGENTS.md", "shop/till/AGENTS.md"]
    assert [item["text"] for item in items] == ["Top.", "Shop.", "Till."]


async def test_of_AGENTS_md_that_are_too_long_together_the_nearest_stay(ask, sources):
    ask.write("AGENTS.md", "t" * 100_000)
    ask.write("shop/AGENTS.md", "s" * 100_000)
    ask.write("shop/till/AGENTS.md", "n" * 100_000)
    ask.working_dir = ask.folder / "shop" / "till"

    items = await ask(sources.agents_md)

    assert paths(items) == ["shop/AGENTS.md", "shop/till/AGENTS.md"]
    (warning,) = ask.warnings
    assert "so AGENTS.md is left out" in warning


async def test_outside_of_the_workspace_the_repositorys_own_come_after_the_workspaces(
    ask, sources, tmp_path
):
    ask.write("AGENTS.md", "The operator's.")
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "src").mkdir()
    (repository / "AGENTS.md").write_text("The repository's.")
    (tmp_path / "AGENTS.md").write_text("Of no concern.")
    ask.working_dir = repository / "src"

    items = await ask(sources.agents_md)

    assert [item["text"] for item in items] == ["The operator's.", "The repository's."]


async def test_the_first_of_several_names_counts_in_each_folder(ask, sources):
    ask.write("AGENTS.md", "Agents.")
    ask.write("CLAUDE.md", "Claude.")
    ask.write("sub/CLAUDE.md", "Only this.")
    ask.working_dir = ask.folder / "sub"
    items = await ask(sources.agents_md, names=["AGENTS.md", "CLAUDE.md"])
    assert paths(items) == ["AGENTS.md", "sub/CLAUDE.md"]


async def test_K13_every_byte_of_a_file_resource_is_there(ask, sources):
    text = "".join(f"{number:05}\n" for number in range(5000))
    ask.write("steering/product.md", text)
    ask.resources = ("file://steering/product.md", "skill://skills/*/SKILL.md")
    (item,) = await ask(sources.files)
    assert item["text"] == text
    assert item["path"] == "steering/product.md"


async def test_file_resources_may_be_patterns_and_the_persons_own(
    ask, sources, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    (tmp_path / "person").mkdir()
    (tmp_path / "person" / "style.md").write_text("Style.")
    for path in ("docs/b.md", "docs/a.md", "docs/deep/er/c.md", "docs/x.txt", "docs/.hidden.md"):
        ask.write(path, path)
    ask.resources = ("file://docs/*.md", "file://docs/**/*.md", "file://~/style.md")

    items = await ask(sources.files)

    assert paths(items) == ["docs/a.md", "docs/b.md", "docs/deep/er/c.md", "~/style.md"]
    assert ask.warnings == []


async def test_a_pattern_follows_no_link_in_a_circle(ask, sources):
    ask.write("docs/a.md", "A.")
    (ask.folder / "docs" / "again").symlink_to(ask.folder / "docs")
    (ask.folder / "docs" / "itself").symlink_to(ask.folder / "docs" / "itself")
    ask.resources = ("file://docs/**/*.md", "file://docs/*/*.md")
    assert paths(await ask(sources.files)) == ["docs/a.md", "docs/again/a.md"]
    assert ask.warnings == ["docs/itself is a symbolic link that leads back to itself; remove it."]


async def test_a_resource_that_names_nothing_is_told(ask, sources):
    ask.resources = ("file://gone.md", "file://docs/*.md")
    assert await ask(sources.files) == []
    assert ask.warnings == [
        "The resource file://gone.md names no file; mend or remove it.",
        "The resource file://docs/*.md matches no file; mend or remove it.",
    ]


async def test_a_pipe_is_never_waited_for(ask, sources):
    (ask.folder / "context").mkdir()
    os.mkfifo(ask.folder / "context" / "SOUL.md")
    assert await ask(sources.documents) == []
    assert ask.warnings == ["context/SOUL.md is no file that could be read; remove it."]
