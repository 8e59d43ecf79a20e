"""Reading pages of the web."""

import codecs
from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.hosts import Reach
from everturn.tools import ToolContext, tool
from everturn_activities.threads import in_thread
from everturn_activities.web import BYTES_MAX, Page, fetch

_TEXTS = ("text/", "application/json", "application/xml", "application/javascript")
_HTML = ("text/html", "application/xhtml+xml")


@tool(effect="pure", searches=True, untrusted=True, timeout_seconds=60.0)
async def web_fetch(
    url: Annotated[str, Field(min_length=1, description="Begins with http:// or https://.")],
    context: ToolContext,
) -> str:
    """Read a page of the web; HTML comes as Markdown."""
    page = await fetch(url, Reach.of(context.allowed_hosts))
    text = await in_thread(_text, page)
    cut = "" if page.complete else f"\n[Only the first {BYTES_MAX} bytes were read.]"
    if page.status >= 400:
        raise ToolFailed(f"{page.url} answered with status {page.status}:\n{text[:2000]}")
    return f"{page.url}\n\n{text}{cut}"


def _text(page: Page) -> str:
    html = page.kind in _HTML
    if not html and page.kind and not _is_text(page.kind):
        raise ToolFailed(f"{page.url} is {page.kind[:80]}, which is no text; it was not read.")
    text = page.content.decode(_charset(page), "replace")
    if not page.kind and "\0" in text:
        raise ToolFailed(f"{page.url} is no text; it was not read.")
    if not html:
        return text
    # Imported late: it takes a tenth of a second, and most workers never need it.
    from everturn_activities.markdown import markdown

    return markdown(text)


def _is_text(kind: str) -> bool:
    return kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))


def _charset(page: Page) -> str:
    try:
        name = codecs.lookup(page.charset or "utf-8").name
    except LookupError:
        return "utf-8"
    # Some codecs of Python's are none of characters.
    return name if getattr(codecs.lookup(name), "_is_text_encoding", True) else "utf-8"
