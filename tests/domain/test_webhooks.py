"""Webhooks: their signatures, their pauses, and what their receivers answer."""

import pytest
from pydantic import ValidationError

from everturn.webhooks import Webhook, pause_seconds, refusal, signed_headers


def test_a_delivery_is_signed_as_the_standards_own_example() -> None:
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"


def test_a_secret_of_any_other_kind_is_taken_as_it_is() -> None:
    plain = signed_headers("just a secret", "msg_1", 1, b"{}")["webhook-signature"]
    broken = signed_headers("whsec_no base64", "msg_1", 1, b"{}")["webhook-signature"]
    assert plain == "v1,m/W+azCknd72zAhHSL1YSEp15F2Ys8dDtteqCCxedXc="
    assert plain != broken


def test_pauses_double_to_an_hour_and_are_spread_by_a_fifth() -> None:
    assert [pause_seconds(n, 0.5) for n in (1, 2, 3, 4)] == [5, 10, 20, 40]
    assert pause_seconds(12, 0.5) == pause_seconds(100, 0.5) == 3600
    assert [pause_seconds(1, 0.0), pause_seconds(1, 1.0)] == pytest.approx([4, 6])


def test_only_an_answer_of_success_is_an_acknowledgement() -> None:
    assert refusal(204) is None
    assert refusal(302) == "The receiver redirects (HTTP 302), and that is not followed."
    assert refusal(410) == "The receiver wants nothing more (HTTP 410)."
    assert refusal(500) == "The receiver answered HTTP 500."
    assert refusal(199) == "The receiver answered HTTP 199."


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://example.com", "no URL of the web"),
        ("https://", "no URL of the web"),
        ("https://me:pass@example.com", "a user or a password"),
        ("https://example.com:99999", "its port is not one"),
    ],
)
def test_what_cannot_be_called_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Webhook(url=url, secret="HOOK")
