"""Comparisons of runs, from their directories alone. Imports no torch.

- `comparison`        `compare_runs`: everything that tables, pages and figures show
- `curves`            learning curves of any metric, with a band over seeds
- `compared_runs`     reading of many runs: facts, score and series of each, and those that are broken
- `grouping`          groups of runs, one per configuration; tasks that groups share
- `configurations`    which runs have one configuration, in what configurations differ, labels; no numpy
- `series`            metrics of a run over steps, in bounded memory
- `statistics`        interquartile mean, bootstrap intervals, probability of improvement, profiles
- `reference_scores`  D4RL's reference scores, one table
- `sides`             `compare_sides`: directories of runs against each other, task by task
- `verdicts`          one pair: difference, probability of improvement, and a plain sentence
- `tables`            a comparison as JSON and as CSV files
- `report_page`       `write_report`: a comparison as one HTML file
- `figures`           `write_figures`: its charts as SVG and PNG
- `card_page`         `write_card`: a score card as one HTML file
- `search_page`       `write_search_page`: a search over configurations as one HTML file
- `pages/`            charts, templates and layout of these pages
"""
