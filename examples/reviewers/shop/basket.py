"""What a customer wants to buy."""


def total(prices: list[float], percent_off: float = 0) -> float:
    return sum(prices) * (1 - percent_off)


def average(prices: list[float]) -> float:
    return sum(prices) / len(prices)
