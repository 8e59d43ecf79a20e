"""Values are taken out of texts in whatever form they stand there, and nothing else is."""

import base64
import html
import json
import re
import textwrap
from urllib.parse import quote, quote_plus, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from everturn.scrubbing import Scrubber, secrets_of

VALUE = 'ca/na+ry "of" <the> ~mine*! & (42)%'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"


def knows(*values: str) -> Scrubber:
    scrubber = Scrubber()
    for number, value in enumerate(values):
        scrubber.learn(f"S{number}", value)
    return scrubber


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FORMS = {
    "plain": VALUE,
    "json": json.dumps({"a": VALUE}),
    "json-slashes": json.dumps(VALUE).replace("/", "\\/"),
    "json-pages": json.dumps(VALUE)
    .replace("<", "\\u003c")
    .replace(">", "\\u003e")
    .replace("&", "\\u0026"),
    "html": html.escape(VALUE),
    "html-text": html.escape(VALUE, quote=False),
    "quoted": quote(VALUE, safe=""),
    "quoted-path": quote(VALUE),
    "quoted-form": quote_plus(VALUE),
    "quoted-by-pages": quote(VALUE, safe="!'()*"),
    "form-of-pages": quote_plus(VALUE, safe="*").replace("~", "%7E"),
    "query-of-aiohttp": str(URL("http://host").with_query({"k": VALUE})),
    "query-of-httpx": str(httpx.URL("http://host", params={"k": VALUE})),
    "url-of-pages": quote(VALUE, safe=";,/?:@&=+$!*'()#"),
    "quoted-low": re.sub("%..", lambda escape: escape[0].lower(), quote(VALUE, safe="")),
    "hex": VALUE.encode().hex(),
    "HEX": VALUE.encode().hex().upper(),
    "wrapped": textwrap.fill(VALUE.encode().hex(), 20),
    "wrapped-crlf": "\r\n".join(textwrap.wrap(VALUE.encode().hex(), 20)),
    "base64url": base64.urlsafe_b64encode(b"??>" + VALUE.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_value_is_found_in_its_usual_forms(form):
    clean = knows(VALUE).scrubbed(f"before {form} after")
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert "[secret S0]" in clean
    for piece in (VALUE, VALUE.encode().hex()[:20], quote(VALUE, safe="")):
        assert piece not in clean


@pytest.mark.parametrize("mark", ["&#x27;", "&#39;", "&apos;"])
def test_a_value_with_an_apostrophe_is_found_as_any_page_writes_it(mark):
    assert knows("it's a 'secret'").scrubbed(f"<p>it{mark}s a {mark}secret{mark}</p>") == (
        "<p>[secret S0]</p>"
    )


def test_a_value_that_json_escapes_is_found_escaped_and_plain():
    value = 'grüße "0123456"'
    for form in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert knows(value).scrubbed(form) == '"[secret S0]"'


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "Authorization: "])
@pytest.mark.parametrize("after", ["", "z", "yz"])
def test_base64_of_a_text_that_holds_a_value_gives_none_of_it_away(before, after):
    encoded = in_base64(f"{before}{VALUE}{after}")
    clean = knows(VALUE).scrubbed(encoded)
    mark = "[secret S0]"
    head, _, tail = clean.partition(mark)
    assert mark in clean
    # What is left decodes to what stood around it, and to two bits of the value on each side.
    assert len(head) + len(tail) <= len(in_base64(before + after)) + 4


def test_base64_of_addresses_is_found_too():
    value = "?>~" * 4
    encoded = base64.urlsafe_b64encode(f"abc{value}".encode()).decode()
    assert "-" in encoded
    assert knows(value).scrubbed(encoded) == "YWJj[secret S0]"


def test_a_key_of_several_lines_is_found_by_each_of_its_lines():
    scrubber = knows(KEY)
    assert scrubber.scrubbed(f"x {KEY} y") == "x [secret S0] y"
    indented = textwrap.indent(KEY, "    ")
    clean = scrubber.scrubbed(indented)
    assert "MIIE" not in clean
    assert "AQEF" not in clean
    assert "-----BEGIN KEY-----" in clean


def test_of_two_values_one_of_which_begins_like_the_other_nothing_is_left():
    scrubber = knows("abcdefgh", "abcdefghijklmnop")
    assert scrubber.scrubbed("abcdefghijklmnop abcdefgh") == "[secret S1] [secret S0]"
    overlapping = knows("abcdefghij", "ghijklmnop")
    assert overlapping.scrubbed("<abcdefghijklmnop>") == "<[secret S0]>"


def test_what_is_too_short_would_be_found_in_innocent_texts_and_is_not_looked_for():
    assert knows("1234567").scrubbed("1234567") == "1234567"
    assert knows(" 12345678\n").scrubbed("12345678") == "[secret S0]"


def test_a_text_without_values_is_given_back_itself():
    text = "nothing\nin\r\nhere"
    assert knows(VALUE).scrubbed(text) is text
    assert Scrubber().scrubbed(text) is text


def test_no_value_shows_in_what_a_scrubber_says_of_itself():
    assert repr(knows(VALUE)) == "Scrubber of 1 values"


@given(
    st.lists(st.sampled_from([VALUE, "abcdefgh", "abcdefghijklmnop", "abc", "z\n", "ca/na"])),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_a_text_in_pieces_is_cleaned_as_the_whole_is(texts, sizes):
    scrubber = knows(VALUE, "abcdefgh", "abcdefghijklmnop")
    text = "".join(texts)
    stream, shown, at, turn = scrubber.stream(), "", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        shown += stream.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    shown += stream.rest()
    assert shown == scrubber.scrubbed(text)


def test_what_may_begin_a_value_is_held_back_and_shown_once_it_is_none():
    stream = knows("abcdefgh").stream()
    assert [stream.feed(piece) for piece in ("say abc", "d", "x", "abcdefg")] == [
        "say ",
        "",
        "abcdx",
        "",
    ]
    assert stream.rest() == "abcdefg"


@pytest.mark.parametrize(
    ("then", "shown"), [("klmnop!", "[secret S0]!"), ("!", "[secret S0]!"), ("", "[secret S0]")]
)
def test_a_value_that_ends_as_another_begins_is_held_back_whole(then, shown):
    stream = knows("abcdefghij", "ghijklmnop").stream()
    assert stream.feed("x abcdefghij") == "x "
    assert stream.feed(then) + stream.rest() == shown


def test_secrets_of_a_url_are_found_as_they_stand_and_decoded():
    url = "redis://me:p%2Dss@host/0?token=ca%6Eary+1&keyspace_%6Bey=b%20b&timeout=5"

    assert secrets_of(urlsplit(url)) == {
        *("p%2Dss", "p-ss"),
        *("ca%6Eary+1", "canary+1", "canary 1"),
        *("b%20b", "b b"),
    }
