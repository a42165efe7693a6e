"""The estimate of what a hospital computes and sends."""

from dataclasses import replace

from kernels.rounds.automatic import automatic_program
from kernels.rounds.in_words import in_words
from kernels.rounds.known import known_to_hospitals
from kernels.rounds.work import work
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target

SCHEMA = Schema((Numeric("age", "y"), Numeric("lactate", "mmol/L")), (Target("stay", "d"),))


def test_what_is_sent_is_eight_bytes_for_each_number() -> None:
    program = automatic_program(SCHEMA)
    assert work(program, rows=0).megabytes * 1e6 == 8 * known_to_hospitals(program)


def test_a_smaller_program_costs_less_and_more_rows_cost_more() -> None:
    small, large = automatic_program(SCHEMA, max_features=50), automatic_program(SCHEMA)
    assert work(small, rows=100).cpu_seconds < work(large, rows=100).cpu_seconds
    assert work(large, rows=100).cpu_seconds < work(large, rows=1000).cpu_seconds


def test_a_program_says_what_it_costs_a_hospital_before_it_runs() -> None:
    program = automatic_program(SCHEMA, max_features=50)
    (said,) = (line for line in in_words(program, blind=True) if "seconds on one core" in line)
    assert f"{round(work(program, rows=1000).megabytes):,} MB" in said
    shorter = replace(program, stages=program.stages[:1])
    assert any("at most 1 MB" in line for line in in_words(shorter, blind=True))
