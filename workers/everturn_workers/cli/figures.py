"""How figures are written for people."""


def shown_cost(usd: float | None) -> str:
    """Dollars with four places; what is less than they show is not shown as nothing."""
    if usd is None:
        return "unknown"
    return "<$0.0001" if 0 < usd < 0.0001 else f"${usd:.4f}"
