"""What is in the warehouse."""


def take(stock: dict[str, int], item: str, taken=[]) -> list[str]:
    stock[item] -= 1
    taken.append(item)
    return taken
