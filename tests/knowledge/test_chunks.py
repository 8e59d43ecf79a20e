"""A file is found in pieces that name their lines."""

from everturn_activities.knowledge.chunks import CHARACTERS_MAX, chunks_of

GUIDE = """\
Before any heading.

# Guide
Begin here.

## Install
```sh
# no heading, but a comment
uv sync
```

## Use
Run it.
"""


def test_a_document_is_cut_at_its_headings() -> None:
    chunks = chunks_of("guide.md", GUIDE)
    assert [(chunk.first, chunk.last, chunk.heading) for chunk in chunks] == [
        (1, 2, ""),
        (3, 5, "Guide"),
        (6, 11, "Guide > Install"),
        (12, 13, "Guide > Use"),
    ]
    assert "# no heading" in chunks[2].text


def test_a_long_text_is_cut_at_blank_lines_and_no_line_is_lost() -> None:
    paragraphs = "\n\n".join(f"paragraph {n} " + "word " * 60 for n in range(20))
    chunks = chunks_of("long.py", paragraphs)
    assert all(len(chunk.text) <= CHARACTERS_MAX for chunk in chunks)
    assert len(chunks) > 3
    lines = paragraphs.splitlines()
    for chunk in chunks:
        assert "\n".join(lines[chunk.first - 1 : chunk.last]).rstrip() == chunk.text
    assert sum(chunk.text.count("paragraph") for chunk in chunks) == 20


def test_one_endless_line_is_several_pieces_of_that_line() -> None:
    chunks = chunks_of("one.txt", "x" * (2 * CHARACTERS_MAX + 5))
    assert [(chunk.first, chunk.last, len(chunk.text)) for chunk in chunks] == [
        (1, 1, CHARACTERS_MAX),
        (1, 1, CHARACTERS_MAX),
        (1, 1, 5),
    ]


def test_a_blank_file_says_nothing() -> None:
    assert chunks_of("empty.md", " \n\n") == []
