"""What is measured: a module for each suite of `benchmarks.harness.options.SUITES`."""
