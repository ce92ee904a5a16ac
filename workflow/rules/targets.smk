# Policies, harvests, tables and figures of the grid, so far as the interim analyses have decided, and their names in
# a report.

HARVESTS = grid.harvests(NOW)
PROBES = grid.probes(CONFIG)
POLICIES = grid.policies(NOW)
TRAINED = [policy for policy in POLICIES if policy.role != "base"]
CONTROL_HARVESTS = grid.harvests_of_controls(NOW)
AUTO_WARMUPS = grid.auto_warmups(NOW)
# Regimes that are swept, and the development problems; the pool is then the rest.
SWEPT = list(CONFIG.sweep.regimes) if CONFIG.sweep else []
CANDIDATES = candidate_policies(CONFIG)
TRAINING_POOL = f"results/problems/pool{'.training' if held_out(CONFIG) else ''}.jsonl"
DEVELOPMENT_OF = development_of(CONFIG)
DEVELOPMENT_CHECKS = [f"results/problems/{name}.development.json" for name in DEVELOPMENT_OF]
# Candidates of each selected policy, by its folder.
CHECKPOINTS = {key.folder: tried for key, tried in grid.checkpoints(CONFIG).items()}
FACTORIAL = {model: files for model in CONFIG.models if (files := grid.factorial_files(CONFIG, model))}
TABLES = catalogue.tables_of(CONFIG)
TITLES = {name: table.title for name, table in TABLES.items()}
FIGURES = {figure.name: figure for figure in catalogue.FIGURES}


def candidates_of(model, swept):
    """The policies that a sweep chooses between, in ascending order of their values."""
    return [key for candidate, key in CANDIDATES if (key.model, candidate.swept) == (model, swept)]


def candidates(w):
    """The policies that a checkpoint is selected from, K ascending."""
    return CHECKPOINTS[f"{w.model}/seed{w.seed}/{w.owner}/{SELECTED}/g{w.g}/k{w.k}"]


def scored(w, kind, ending):
    """What they wrote to the development prompts of a kind; nothing where they are not selected by it."""
    asked = kind in chosen_by(CONFIG, w.owner)
    return [f"results/{key.folder}/development/{kind}.{ending}" for key in candidates(w) if asked]


def bills_of_all(config):
    """The bills of harvests, trainings and evaluations."""
    policies = grid.policies(config)
    made = [*grid.harvests(config), *(policy for policy in policies if policy.role != "base")]
    bills = [f"results/{one.folder}/cost.json" for one in made]
    return bills + [f"results/{p.folder}/eval/{name}.cost.json" for p in policies for name in config.benchmarks]


def informativeness_of_all(config):
    """What is known of every harvest."""
    return [f"results/{harvest.folder}/informativeness.json" for harvest in grid.harvests(config)]


def browsed(config, file):
    """A file of every harvest that the page shows."""
    harvests = [*grid.harvests(config), *grid.harvests_of_controls(config)]
    return [f"results/{harvest.folder}/{file}" for harvest in harvests]


def in_report(file, category, title, caption=None):
    """An output that `snakemake --report` shows. Its menu is on every page: a demonstration says so there."""
    category = f"{category} (synthetic demonstration)" if CONFIG.demonstration else category

    def labels(wildcards):
        return {"what": title} | ({"caption": captions(CONFIG, [caption])[caption]["caption"]} if caption else {})

    return report(file, category=category, labels=labels)


def table_file(table):
    """Where a table is written. Table 1 is in Snakemake's report too."""
    file = f"results/tables/{table.name}.csv"
    return in_report(file, "Tables", table.title, "main") if table.name == "main" else file
