"""Studies: a matrix of training runs under one protocol, and the report that they make together.

spec      a study's TOML file, checked
plan      its runs: folders, commands, what each would be trained with
run       what is missing, in processes of their own
pack      what a published study keeps
results   what runs left: rates, costs, learning curves
report    tables, figures and comparisons (tables, plots)
"""
