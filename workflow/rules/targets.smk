# Policies, harvests, tables and figures of the grid.

HARVESTS = grid.harvests(CONFIG)
POLICIES = grid.policies(CONFIG)
TRAINED = [policy for policy in POLICIES if policy.role != "base"]
AUTO_WARMUPS = grid.auto_warmups(CONFIG)
TABLES = catalogue.tables_of(CONFIG)
TITLES = {name: table.title for name, table in TABLES.items()}
FIGURES = {figure.name: figure for figure in catalogue.FIGURES}


def in_report(file, category, title, caption=None):
    """Output that `snakemake --report` shows; a demonstration is named in its menu."""
    category = f"{category} (synthetic demonstration)" if CONFIG.demonstration else category

    def labels(wildcards):
        return {"what": title} | ({"caption": captions(CONFIG, [caption])[caption]["caption"]} if caption else {})

    return report(file, category=category, labels=labels)


def table_file(name):
    """File of a table. Table 1 is in Snakemake's report too."""
    file = f"results/tables/{name}.csv"
    return in_report(file, "Tables", TITLES[name], name) if name == "main" else file
