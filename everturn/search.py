"""Searching the web: by whom, and what was found."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from everturn.messages import Frozen
from everturn.secrets import UPPER_NAME

SEARCH_URLS = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
}


class Search(Frozen):
    """Who searches the web for agents: a SearXNG at `url`, or a service with a key, whose secret
    `key` names. `url` is then another address of the service."""

    provider: Literal["searxng", "brave", "tavily"]
    url: str | None = None
    key: str | None = Field(default=None, pattern=UPPER_NAME)

    @model_validator(mode="after")
    def _complete(self) -> "Search":
        if self.provider == "searxng" and self.url is None:
            raise ValueError('provider "searxng" needs the url of a SearXNG')
        if self.provider != "searxng" and self.key is None:
            raise ValueError(f'provider "{self.provider}" needs a key: the name of a secret')
        try:
            url = urlsplit(self.address)
            valid = url.scheme in ("http", "https") and url.hostname and url.port != 0
        except ValueError:
            valid = False
        if not valid or url.username is not None:
            raise ValueError("the url of a search is http://HOST or https://HOST, without a user")
        return self

    @property
    def address(self) -> str:
        return self.url or SEARCH_URLS[self.provider]


class Found(Frozen):
    title: str
    url: str
    text: str
