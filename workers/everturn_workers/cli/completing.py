"""What a chat proposes for what is typed: agents after @, commands and skills after /."""

from collections.abc import Iterable, Mapping

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document


class Names(Completer):
    """`named` are the words that a message may begin with, each with what it is for."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._named = dict(named)

    def learn(self, named: Mapping[str, str]) -> None:
        self._named = dict(named)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        begun = document.text_before_cursor
        if begun[:1] not in ("@", "/"):
            return
        for name, purpose in self._named.items():
            if name.startswith(begun):
                yield Completion(name + " ", -len(begun), display=name, display_meta=purpose)
