from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from frazil.pipeline.jobs.order import JobOrder
from frazil.registry import Job

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def job(number: int, caller: str) -> Job:
    return Job(f"{number:05}", "csv", "main.orders", BEGAN + timedelta(seconds=number), caller)


def served(order: JobOrder, jobs: list[Job]) -> list[Job]:
    """All of them in their order, none of them twice."""
    left, found = list(jobs), []
    while (job := order.next(left)) is not None:
        left.remove(job)
        found.append(job)
    return found


def test_one_callers_hundred_jobs_cost_another_one_of_them() -> None:
    many = [job(number, "greedy") for number in range(100)]
    order = JobOrder()
    assert order.next(many) == many[0]
    later = [*many[1:], job(200, "modest"), job(201, "modest"), job(202, "third")]
    assert [one.asked_by for one in served(order, later)[:6]] == "modest third greedy modest greedy greedy".split()


def test_jobs_without_a_caller_are_those_of_one() -> None:
    jobs = [job(0, ""), job(1, ""), job(2, ""), job(3, "new")]
    assert [one.id for one in served(JobOrder(), jobs)] == ["00000", "00003", "00001", "00002"]


def test_whoever_asks_again_at_once_is_not_new_each_time() -> None:
    order, waiting = JobOrder(), [job(number, "patient") for number in range(5)]
    callers = []
    for number in range(10, 20):
        found = order.next([*waiting, job(number, "eager")])
        assert found is not None
        callers.append(found.asked_by)
        waiting = [one for one in waiting if one != found]
    assert callers[:8] == ["patient", "eager"] * 4


@given(st.lists(st.sampled_from("abcd"), max_size=40))
def test_nobody_waits_for_two_jobs_of_another(callers: list[str]) -> None:
    jobs = [job(number, caller) for number, caller in enumerate(callers)]
    found = served(JobOrder(), jobs)
    assert sorted(found, key=lambda one: one.id) == jobs, "each once"
    for caller in set(callers):
        own = [one.id for one in found if one.asked_by == caller]
        assert own == sorted(own), "a caller's own jobs are done in the order in which they came"
        last = [index for index, one in enumerate(found) if one.asked_by == caller]
        for before, after in zip([-1, *last], last, strict=False):
            between = [one.asked_by for one in found[before + 1 : after]]
            assert len(between) == len(set(between)), "all of these were asked for at the beginning"
