"""What a model is told, as by the user, when its last reply was no answer."""

from everturn.session import Stop

CUT = (
    "Your reply was cut off because it reached its token limit. Resume directly: no apology and"
    " no recap, pick up in the middle of the thought where it was cut. No tool call of that"
    " reply was run; make it again where it is still needed. Work in smaller pieces."
)
EMPTY = (
    "Your reply was empty. Answer, or go on with the work by calling a tool; if everything is"
    " done, say so in a sentence."
)
UNFIT = (
    "Your reply is no answer in the form that is asked for. Give your answer by calling the tool"
    " `response` with arguments that fit its schema; text beside the call is not read."
)


def nudge(stop: Stop) -> str | None:
    """What follows a reply of that stop, or None where it needs no mending."""
    return {"max_tokens": CUT, "empty": EMPTY, "unfit": UNFIT}.get(stop)
