"""Whoever listens is told that kernels are being compiled."""

from tests.kernels.installed import SCRIPT, run


def test_a_log_that_is_listened_to_gets_the_message_instead_of_stderr(installed, tmp_path):
    listening = "import logging; logging.basicConfig(stream=__import__('sys').stdout, format='log: %(message)s')\n"
    lines, said = run(installed, listening + SCRIPT, NUMBA_CACHE_DIR=str(tmp_path))
    assert said == ""
    assert lines[0].startswith("log: Compiling the simulation's kernels")
