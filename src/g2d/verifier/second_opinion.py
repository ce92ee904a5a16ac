"""placeholder"""
def second_opinion(reference: str, answer: str) -> bool | None:
    return True if reference.strip() == answer.strip() else None
