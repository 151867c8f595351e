"""`python -m nco_guard.cli`: the same as the `nco-guard` command."""

from nco_guard.cli import main

if __name__ == "__main__":
    main()
