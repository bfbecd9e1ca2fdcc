"""Charts and HTML pages: the machinery behind `report_page`, `card_page`, `search_page` and `figures`.

- `page`               one self-contained file from a template, with every value escaped
- `templates/`         layout, styles, and the pages
- `comparison_charts`  charts of a comparison
- `search_charts`      charts of a search
- `charts`             kinds of charts, from labels and arrays
- `points`             finite values, and no more points than a line needs
- `drawing`            palette, settings of matplotlib, inline SVG, files
"""
