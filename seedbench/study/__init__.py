"""Studies: a matrix of training runs under one protocol, and the report that they make together.

spec      a study's TOML file, checked
plan      its runs: folders, commands, what each would be trained with
run       what is missing, in processes of their own
pack      what a published study keeps
archive   published studies as one file, and how they are opened
evidence  the verification of a study
results   what runs left: rates, costs, learning curves, signals
report    tables, comparisons, signals, skills and figures, as Markdown and as a page (sheets, page)
"""
