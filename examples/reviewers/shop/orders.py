"""Orders by their number."""


def find(connection, number: str):
    return connection.execute(f"SELECT * FROM orders WHERE number = '{number}'").fetchone()
