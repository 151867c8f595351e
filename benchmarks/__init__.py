"""Every figure that this project publishes, measured from a checkout: `python -m benchmarks --help`.

`harness` times, compares, records and shows. `methods` are what is measured beside nco-guard, `inputs` what all of them
are given. A suite is a module of `suites`; `experiments` are the paper's tables on an accelerator. The library knows
nothing of all this, and its wheel holds none of it.
"""
