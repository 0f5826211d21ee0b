"""The memory of a solve, known before anything is allocated."""

# Refused above it: the system would kill the process without a word.
_MOST_MEMORY = 16 * 2**30


def require_memory(size: float, advice: str) -> None:
    """Raise where a limit would need more memory than most machines have, in bytes."""
    if size > _MOST_MEMORY:
        raise ValueError(
            f"This limit would need {size / 2**30:.0f} GiB, more than "
            f"{_MOST_MEMORY / 2**30:.0f}. {advice}"
        )
