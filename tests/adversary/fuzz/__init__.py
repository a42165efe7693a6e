"""A fuzzer of hostile states, totals and programs: nothing seen of a site may depend on its rows.

    python -m tests.adversary.fuzz [--minutes 10] [--seed N] [--case N]

Everything starts from honest runs of every algorithm and kind of run, with and without noise
(`honest`). What is hostile is drawn at random:

    states         damaged everywhere (`damage`); they enter below replay, as a colluding author of
                   tasks could let them
    totals         forged by a colluding member (`hostile_totals`); every member replays them
    programs       extreme but readable, or damaged text (`hostile_programs`, `damage`)
    conversations  three hospitals with different tables join a session with such a program
                   (`conversations`)

Sites that differ only in their rows, with none, one and many in each part, in memory and streamed
(`sites`), get the same, and what can be seen from outside is compared (`observing`): whether the
site answers, the code that it reports, its requests and their sizes, and what it is charged. With
noise, it is also compared what one unit changes in the numbers (`neighbours`).
"""
