"""A fuzzer of hostile states and programs: nothing seen of an answer may depend on the rows.

    python -m tests.adversary.fuzz [--minutes 10] [--seed N]

States and programs are damaged at random (`damage`), starting from honest ones of every algorithm,
with and without differential privacy, and of every kind of run (`honest`). They enter below replay,
as a colluding author of tasks could let them. Sites that differ only in their rows (`sites`) get
the same damaged state, and what can be seen from outside is compared (`observing`): whether the
site answers, the code that it reports, its requests and their sizes, and what it is charged.
"""
