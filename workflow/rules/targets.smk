# What the grid consists of, as far as its looks have decided: its policies, harvests, tables and figures, and how a
# report calls them.

HARVESTS = grid.harvests(NOW)
PROBES = grid.probes(CONFIG)
POLICIES = grid.policies(NOW)
TRAINED = [policy for policy in POLICIES if policy.role != "base"]
AUTO_WARMUPS = grid.auto_warmups(NOW)
# What a sweep chooses between, and by which problems: the pool is then what is left of it.
SWEPT = list(CONFIG.sweep.regimes) if CONFIG.sweep else []
TRAINING_POOL = f"results/problems/pool{'.training' if held_out(CONFIG) else ''}.jsonl"
DEVELOPMENT_OF = development_of(CONFIG)
FACTORIAL = {model: files for model in CONFIG.models if (files := grid.factorial_files(CONFIG, model))}
TABLES = catalogue.tables_of(CONFIG)
TITLES = {name: table.title for name, table in TABLES.items()}
FIGURES = {figure.name: figure for figure in catalogue.FIGURES}


def category(title):
    """A heading of the report's menu, which every page shows: a demonstration says so there too."""
    return f"{title} (synthetic demonstration)" if CONFIG.demonstration else title


def caption(name):
    """The text of the caption of a table or figure."""
    file = HERE.join(f"../report/{name}.rst")
    return Path(file.path if ROOT else workflow.sourcecache.get_path(file)).read_text(encoding="utf-8")
