import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices in one thread, as the policy itself works."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
