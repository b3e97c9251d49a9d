"""One thread inside, the old numbers outside, however it is nested."""

import threading

import numpy as np  # noqa: F401 (brings BLAS)
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from attribution_sched.kernels import one_thread


def numbers():
    blas = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    return torch.get_num_threads(), blas


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    with threadpool_limits(2):
        torch.set_num_threads(2)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def test_one_thread_inside_and_two_again_outside(two_threads):
    outside = numbers()
    assert outside[0] == 2 and 2 in outside[1]
    with one_thread():
        torch_threads, libraries = numbers()
        assert torch_threads == 1 and set(libraries) == {1}
        with one_thread():
            assert numbers()[0] == 1
        assert numbers()[0] == 1 and set(numbers()[1]) == {1}
    assert numbers() == outside


def test_numbers_come_back_after_an_error(two_threads):
    outside = numbers()
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert numbers() == outside


def test_a_decorated_function_may_be_called_again(two_threads):
    @one_thread()
    def inside():
        return torch.get_num_threads()

    assert [inside(), inside(), torch.get_num_threads()] == [1, 1, 2]


def test_the_last_of_two_threads_to_leave_restores_the_libraries(two_threads):
    outside = numbers()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with one_thread():
            entered.set()
            leave.wait(10)

    worker = threading.Thread(target=other)
    with one_thread():
        worker.start()
        assert entered.wait(10)
    # This thread has left, the other is still inside: torch's number is this thread's own, BLAS belongs to both.
    assert torch.get_num_threads() == 2
    assert set(numbers()[1]) == {1}
    leave.set()
    worker.join()
    assert numbers() == outside
