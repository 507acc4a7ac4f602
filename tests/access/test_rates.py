"""Buckets: what passes, what has to wait, and that they do not pile up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.access.rate_limit import RateLimiter


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_and_then_the_rate() -> None:
    clock = Clock()
    rates = RateLimiter(clock=clock)
    assert [rates.take("a", per_second=10, burst=3) for _ in range(4)] == [0, 0, 0, pytest.approx(0.1)]
    assert rates.take("b", per_second=10, burst=3) == 0, "each has its own"
    clock.now += 0.05
    assert rates.take("a", per_second=10, burst=3) == pytest.approx(0.05), "being refused costs nothing"
    clock.now += 0.05001
    assert rates.take("a", per_second=10, burst=3) == 0
    clock.now += 1e6
    assert [rates.take("a", per_second=10, burst=3) for _ in range(4)][:3] == [0, 0, 0]
    assert rates.take("a", per_second=10, burst=3) > 0, "it does not fill above its brim"


def test_slower_than_once_a_second() -> None:
    clock = Clock()
    rates = RateLimiter(clock=clock)
    assert rates.take("a", per_second=0.1, burst=1) == 0
    assert rates.take("a", per_second=0.1, burst=1) == pytest.approx(10)
    clock.now += 10.001
    assert rates.take("a", per_second=0.1, burst=1) == 0


@given(
    st.lists(st.floats(0, 2), min_size=1, max_size=60),
    st.floats(0.5, 20, allow_subnormal=False),
    st.integers(1, 10),
)
def test_never_more_than_promised_and_never_less(pauses: list[float], per_second: float, burst: int) -> None:
    clock = Clock()
    rates = RateLimiter(clock=clock)
    start, passed = clock.now, 0
    for pause in pauses:
        clock.now += pause
        wait = rates.take("a", per_second=per_second, burst=burst)
        if wait == 0:
            passed += 1
        else:
            clock.now += wait * 1.0001 + 1e-6
            assert rates.take("a", per_second=per_second, burst=burst) == 0, "after the wait it is there"
            passed += 1
        assert passed <= burst + (clock.now - start) * per_second + 1e-6


def test_only_so_many_are_kept() -> None:
    rates = RateLimiter(clock=Clock(), max_buckets=10)
    for number in range(1000):
        rates.take(str(number), per_second=1, burst=1)
        rates.take("busy", per_second=1, burst=1)
    assert len(rates) == 10
    assert rates.take("busy", per_second=1, burst=1) > 0, "who calls all the time is not forgotten"
