"""The checks of `make chaos` find what they are there for."""

from load import Said, Talk
from verdicts import Verdicts, completions, differences, gaps, missed, outcomes

from everturn.events import Event
from everturn.messages import AssistantMessage, Text, ToolMessage, ToolResult, user_text
from everturn.views import MessageView, StepView, TurnView, UsageRow, UsageView
from everturn_activities.gateways.scripted import place_of
from everturn_activities.tools import UNKNOWN_OUTCOME

KEY = place_of([{"role": "user", "content": "pay"}]).key
RECEIVED = {"event": "received", "key": KEY, "time": 10.0}
COMPLETED = {"event": "completed", "key": KEY, "time": 11.0, "usage": {"prompt_tokens": 10}}


def event(seq: int, kind: str, epoch: int = 1, attempt: int = 1, **body: object) -> Event:
    return Event(
        epoch=epoch, seq=seq, type=kind, turn=1, step=1, attempt=attempt, time=20.0, body=body
    )


def stored(position: int, message: object, step: int = 1) -> MessageView:
    return MessageView(
        position=position, turn=1, step=step, message=message, tokens=1, created_at=0
    )  # type: ignore[arg-type]


ASKED = stored(1, user_text("pay"), step=0)
REPLIED = stored(2, AssistantMessage(parts=(Text(text="I pay."),)))
TOLD = [event(1, "text_delta", text="I "), event(2, "text_delta", text="pay.")]
STEP = StepView(
    turn=1, step=1, model="m", placement="inline", attempts=1, stop="end_turn", context_tokens=1,
    usage=UsageView(input_tokens=10), duration_seconds=1,
)  # fmt: skip
TURN = TurnView(
    turn=1, agent="a", outcome="completed", reason=None, started_at=0, ended_at=1, steps=(STEP,)
)
USED = UsageRow(key="s", model_calls=1)


def paid(text: str) -> MessageView:
    return stored(3, ToolMessage(results=(ToolResult(call_id="c", name="pay", text=text),)))


def effect(what: str = "effect") -> dict[str, object]:
    return {"tool": "pay", "what": what, "key": "k" * 16, "session": "s", "time": 1.0}


def test_a_stream_that_leaves_out_a_number_or_repeats_one_has_a_gap():
    assert list(gaps(TOLD)) == []
    assert list(gaps([TOLD[0], event(3, "status")])) == ["1.3 came after 1.1"]
    assert list(gaps([*TOLD, TOLD[1]])) == ["1.2 came after 1.2"]
    behind = event(2, "status", epoch=2)
    assert list(gaps([*TOLD, behind])) == []
    assert list(gaps([behind, event(2, "status", epoch=4)])) == ["4.2 came after 2.2"]


def test_a_turn_whose_end_each_epoch_tells_again_is_one_turn():
    ends = [event(1, "turn_finished"), event(2, "turn_finished", epoch=3)]
    assert Talk("s", told=[*TOLD, *ends]).ended() == {1}


def test_an_event_that_lasts_and_was_never_told_is_found():
    end = event(3, "turn_finished")
    assert list(missed(TOLD, [TOLD[0], event(3, "status")])) == []
    assert list(missed([*TOLD, end], [end])) == []
    assert list(missed(TOLD, [end])) == ["never told of turn_finished of turn 1 step 1"]


def test_a_new_epoch_begins_with_a_snapshot_and_tells_its_turn_anew():
    anew = [event(7, "snapshot", epoch=2, turn=1), event(8, "text_delta", epoch=2, text="I pay.")]
    assert list(gaps([TOLD[0], *anew])) == []
    assert list(differences([TOLD[0], *anew], [ASKED, REPLIED])) == []


def test_a_text_that_is_told_otherwise_than_stored_is_found():
    assert list(differences(TOLD, [ASKED, REPLIED])) == []
    assert list(differences(TOLD[:1], [ASKED, REPLIED])) == ["turn 1 step 1 told 'I ' of 'I pay.'"]
    again = [
        *TOLD,
        event(3, "superseded", attempt=2),
        event(4, "text_delta", attempt=2, text="I pay."),
    ]
    assert list(differences(again, [ASKED, REPLIED])) == []


def test_a_message_that_is_lost_or_worked_twice_or_has_no_outcome_is_found():
    talk = Talk("s", said=[Said("m", "pay", accepted=True)], told=[event(1, "turn_finished")])
    assert list(outcomes(talk, [ASKED], [TURN])) == []
    assert list(outcomes(talk, [], [TURN])) == ["m is in the transcript 0 times"]
    assert list(outcomes(talk, [ASKED, ASKED], [TURN])) == ["m is in the transcript 2 times"]
    assert list(outcomes(talk, [ASKED], [])) == ["m has no outcome"]
    talk.told.append(event(2, "turn_finished"))
    assert list(outcomes(talk, [ASKED], [TURN])) == ["turn 1 was told to end 2 times in epoch 1"]
    talk.told.clear()
    assert list(outcomes(talk, [ASKED], [TURN])) == ["turn 1 was never told to end"]


def test_a_turn_that_failed_is_found():
    failed = TURN.model_copy(update={"outcome": "failed", "reason": "Why."})
    assert list(completions([TURN, failed])) == ["turn 1 is failed (Why.)"]


def test_a_reply_that_is_not_counted_once_and_a_call_that_is_not_counted_as_lost_are_found():
    seen = [ASKED, REPLIED]

    def found(log: list[dict[str, object]], attempts: int = 1, **used: int) -> list[str]:
        step = STEP.model_copy(update={"attempts": attempts})
        turn = TURN.model_copy(update={"steps": (step,)})
        return list(Verdicts(log, []).ledger(seen, [turn], USED.model_copy(update=used)))

    assert found([RECEIVED, COMPLETED]) == []
    assert found([RECEIVED]) == ["turn 1 step 1 is stored and was never told whole"]
    assert found([RECEIVED, COMPLETED], model_calls=2) == ["2 replies counted, 1 stored"]
    assert found([RECEIVED, RECEIVED, COMPLETED], attempts=2, lost_attempts=1) == []
    lost = found([RECEIVED, RECEIVED, COMPLETED], attempts=2)
    assert lost == [
        "0 attempts counted as lost: the endpoint was asked 2 times, 2 attempts were begun,"
        " 1 replies are stored"
    ]
    assert found([RECEIVED, RECEIVED, COMPLETED], lost_attempts=0)[0] == (
        "turn 1 step 1 was asked 2 times in 1 attempts"
    )


def test_a_reply_that_was_asked_for_after_its_step_was_done_is_found():
    talk = Talk("s", told=[event(1, "step_finished")])
    late = {**RECEIVED, "time": 21.0}
    assert list(Verdicts([RECEIVED], []).repeats(talk, [ASKED, REPLIED])) == []
    assert list(Verdicts([late], []).repeats(talk, [ASKED, REPLIED])) == [
        "turn 1 step 1 was asked for after it was done"
    ]


def test_an_effect_that_is_there_twice_or_not_at_all_is_found():
    def found(effects: list[dict[str, object]], text: str) -> list[str]:
        return list(Verdicts([], effects).single_effects("s", [ASKED, REPLIED, paid(text)]))

    assert found([effect()], "pay is done") == []
    assert found([effect()], UNKNOWN_OUTCOME) == []
    assert found([], UNKNOWN_OUTCOME) == []
    assert found([effect(), effect()], "pay is done") == ["pay kkkkkkkk effect 2 times"]
    assert found([], "pay is done") == ["pay had 0 effects, 1 results and 0 unknown"]
    assert found([effect()], "It broke.") == ["pay gave ['It broke.']"]
