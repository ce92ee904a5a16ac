# Interim analyses of seeds in stages (docs/race.md). Each writes which policies get further seeds.
# Once the file exists there is no rule for it, so an analysis never runs twice, even if forced.

LOOKS = CONFIG.looks
TAKEN = taken(LOOKS) if LOOKS else {}


def after_looks(before=None):
    """Return the configuration with the seeds of all interim analyses, or all before one; waits for them."""
    files = TAKEN
    for number in count(1):
        earlier = dict(islice(files.items(), number - 1))
        last = last_of(earlier)
        if number == before or (last and (not last["next"] or number - 1 == LOOKS.until)):
            return (at_look if before else at_end)(CONFIG, earlier)
        if number > len(TAKEN):
            checkpoints.take_look.get(look=number)  # raises until the analysis has run
            files = taken(LOOKS)


LATER = {}  # tables of jobs by the number of interim analyses


def at_last(rule, name):
    """Input: files of the finished grid that a job has under this name."""
    if not LOOKS:
        return JOBS[rule,].inputs[name]

    def files(w):
        config = after_looks()
        n_looks = len(config.reached.files)
        if n_looks not in LATER:
            LATER[n_looks] = build(config)
        return LATER[n_looks][rule,].inputs[name]

    return files


def answers_of_look(w):
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
        params:
            version=VERSIONS["take_look"],
        message:
            "Take look {wildcards.look}"
        script:
            "../scripts/take_look.py"
