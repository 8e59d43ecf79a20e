"""How people are called."""


def greeting(name: str) -> str:
    return f"Good morning, {name}."
