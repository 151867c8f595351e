"""What is measured beside nco-guard: the paper's method, its baselines, and other libraries."""
