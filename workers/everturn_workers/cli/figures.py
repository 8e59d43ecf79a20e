"""How figures are written for people."""


def shown_cost(usd: float, unpriced: int = 0) -> str:
    """Dollars with four places, and how many calls are not in them since their price is not
    known; what is less than they show is not shown as nothing."""
    if unpriced and not usd:
        return f"{unpriced} unpriced"
    known = "<$0.0001" if 0 < usd < 0.0001 else f"${usd:.4f}"
    return f"{known} + {unpriced} unpriced" if unpriced else known


def shown_dollars(usd: float) -> str:
    """Dollars of a budget: all of their places, and four at least."""
    whole, _, places = f"{usd:,.12f}".partition(".")
    return f"${whole}.{places.rstrip('0'):0<4}"


def shown_span(seconds: float) -> str:
    """A time span in its two largest units."""
    if seconds < 60:
        return f"{round(seconds, 1 if seconds < 10 else None):g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
