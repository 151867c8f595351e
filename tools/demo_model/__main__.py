"""`python -m tools.demo_model`."""

from __future__ import annotations

from tools.demo_model.train import main

if __name__ == "__main__":
    raise SystemExit(main())
