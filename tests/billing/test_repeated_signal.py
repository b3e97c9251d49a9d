"""A recorded signal that ends inside the period is begun again, and the bill says so."""

from attribution_sched import System
from attribution_sched.report.collect.bill import bill
from attribution_sched.report.sections.bill import bill_section
from tests.small_world import small


def run_with(path, hours, tmp_path):
    rows = "".join(f"{3600 * i},{200 + 10 * i}\n" for i in range(hours))
    path.write_text(f"time_s,carbon_g_per_kwh\n{rows}", "utf-8")
    domains = [{"name": "east", "carbon": {"kind": "series", "path": str(path)}}, {"name": "west"}]
    system = System(small(domains=domains), "sjf", seed=3, journal=tmp_path / f"{hours}.db")
    system.run(hours=2.5)
    return system


def test_a_signal_that_ends_inside_the_period_is_named(tmp_path):
    with run_with(tmp_path / "short.csv", 1, tmp_path) as system:
        made = bill(system.journal)
        assert made.repeated == (("east", 1.0),) and made.gap < 1e-9
        words = " ".join(getattr(block, "words", "") for block in bill_section(made, "en").blocks)
        assert "The recorded signal of east ends after 1 h" in words
    with run_with(tmp_path / "long.csv", 30, tmp_path) as system:
        assert bill(system.journal).repeated == ()
