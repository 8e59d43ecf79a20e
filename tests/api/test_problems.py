"""What goes wrong, as a client is told."""

from everturn.errors import StoreAway
from everturn_workers.doors.problems import problem_of


def test_a_store_that_is_away_says_when_to_come_again() -> None:
    answer = problem_of(StoreAway("The database at db:5432 does not answer."))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert b"urn:everturn:StoreAway" in answer.body
