"""HTML as Markdown: what a page says, without what it is made of."""

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

HTML_CHARACTERS_MAX = 1_000_000
"""Of a page that is read; more takes seconds of a processor."""

_NOT_READ = ("title", "noscript", "template", "iframe", "svg", "canvas")


class _Converter(MarkdownConverter):
    """Images by their description alone: their addresses tell a model nothing."""

    def convert_img(self, el: object, text: str, parent_tags: object) -> str:
        return str(getattr(el, "attrs", {}).get("alt") or "")


def markdown(html: str) -> str:
    """The Markdown of a page, its title first."""
    soup = BeautifulSoup(html[:HTML_CHARACTERS_MAX], "html.parser")
    title = soup.title.get_text(" ", strip=True) if soup.title is not None else ""
    for tag in soup(_NOT_READ):
        tag.decompose()
    try:
        text = _Converter(heading_style="ATX", bullets="-").convert_soup(soup)
    except RecursionError:
        # Nested more deeply than any page that somebody reads.
        text = soup.get_text("\n", strip=True)
    lines = (line.rstrip() for line in str(text).splitlines())
    body = _without_gaps(lines).strip()
    return f"# {title}\n\n{body}" if title and not body.startswith("# ") else body


def _without_gaps(lines: object) -> str:
    kept: list[str] = []
    for line in lines:  # type: ignore[attr-defined]
        if line or (kept and kept[-1]):
            kept.append(line)
    return "\n".join(kept)
