# Interim analyses of seeds in stages (docs/race.md). Each writes a file that says which policies get further seeds.
# Once the file exists there is no rule for it, so an analysis never runs twice, even if forced.

LOOKS = CONFIG.looks
TAKEN = taken(LOOKS) if LOOKS else {}


def after_looks(before=None):
    """Return the configuration with the seeds of all interim analyses, or of those before one; waits for them."""
    found = TAKEN
    for number in count(1):
        earlier = dict(islice(found.items(), number - 1))
        last = last_of(earlier)
        if number == before or (last and (not last["next"] or number - 1 == LOOKS.until)):
            return (at_look if before else at_end)(CONFIG, earlier)
        if number > len(TAKEN):
            checkpoints.take_look.get(look=number)  # raises until the analysis has run
            found = taken(LOOKS)


LATER = {}  # the tables of jobs by the number of interim analyses so far


def at_last(rule, name):
    """Input: the files of the finished grid that a job of the table has under this name. Interim analyses, if any,
    decide which."""
    if not LOOKS:
        return JOBS[rule,].inputs[name]

    def files(w):
        config = after_looks()
        taken = len(config.reached.files)
        if taken not in LATER:
            LATER[taken] = build(config)
        return LATER[taken][rule,].inputs[name]

    return files


def answers_of_look(w):
    """Input function: files that an interim analysis reads."""
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
