# Looks: the grid's seeds in stages (docs/race.md). A look is a file that says which policies get further seeds. Once it is
# there no rule makes it, so whatever looks newer or is forced, it is never taken again.

LOOKS = CONFIG.looks
TAKEN = taken(LOOKS) if LOOKS else {}


def after_looks(before=None):
    """The configuration with the seeds that the looks ask for, up to the last or before one; waits for these."""
    found = TAKEN
    for number in count(1):
        earlier = dict(islice(found.items(), number - 1))
        last = last_of(earlier)
        if number == before or (last and (not last["next"] or number - 1 == LOOKS.until)):
            return (at_look if before else at_end)(CONFIG, earlier)
        if number > len(TAKEN):
            checkpoints.take_look.get(look=number)  # an exception, until it is taken
            found = taken(LOOKS)


def at_last(files):
    """Input: files of the finished grid, by a function of its configuration. Where there are looks they decide which."""
    return (lambda w: files(after_looks())) if LOOKS else files(CONFIG)


def answers_of_look(w):
    """Input: what a look tests."""
    config, benchmark = after_looks(int(w.look)), next(iter(CONFIG.benchmarks))
    return [f"results/{p.folder}/eval/{benchmark}.parquet" for p in grid.policies(config)]


if LOOKS:

    checkpoint take_look:
        input:
            answers=answers_of_look,
        output:
            look_name(LOOKS, "{look}"),
        log:
            f"results/logs/take_look/{LOOKS.folder}/{{look}}.log",
        benchmark:
            f"results/benchmarks/take_look/{LOOKS.folder}/{{look}}.tsv"
        wildcard_constraints:
            look=names(str(n) for n in range(len(TAKEN) + 1, len(LOOKS.looks) + 1)),
        conda:
            "../../envs/g2d.yaml"
        threads: 1
        params:
            version=VERSIONS["take_look"],
        message:
            "Take look {wildcards.look}"
        script:
            "../scripts/take_look.py"
