"""`nco-guard cache`: what is kept on disk, and how to be rid of it."""

from __future__ import annotations

from pathlib import Path

from nco_guard.cli.output import console, print_json, table

__all__ = ["run_cache"]

_KINDS = {
    "vocabulary": "vocabularies of tokenizers",
    "tree": "prefix trees",
    "quotient": "prefix trees with bytes merged",
    "rule": "rules that were checked",
    "bytes": "alphabets of rules",
    "strings": "automata of strings",
    "table": "rules seen through vocabularies",
}


def run_cache(folder: Path | None, *, clear: bool, as_json: bool) -> None:
    """Show the sizes of a store, or empty it; None: the one that a guard with a cache would use."""
    from nco_guard.storage.store import Store, default_folder

    # A cache that is switched off may still hold what was kept while it was on.
    store = Store.chosen(folder) or Store(default_folder())
    removed = store.clear() if clear else None
    sizes = store.sizes()
    if as_json:
        entries = {kind: {"entries": count, "bytes": size} for kind, (count, size) in sizes.items()}
        document = {"folder": str(store.folder), "limit": store.limit, "kinds": entries}
        if removed is not None:
            document["removed"] = {"entries": removed[0], "bytes": removed[1]}
        print_json(document)
        return
    out = console()
    out.print(f"folder {store.folder}", markup=False, soft_wrap=True)
    if removed is not None:
        out.print(f"removed {removed[0]:,} entries, {removed[1] / 2**20:.1f} MiB", markup=False)
        return
    rows = table(out, "kept", ">entries", ">MiB")
    for kind, (count, size) in sizes.items():
        rows.add_row(_KINDS.get(kind, kind), f"{count:,}", f"{size / 2**20:.1f}")
    total = sum(size for _, size in sizes.values())
    rows.add_row("all", f"{sum(count for count, _ in sizes.values()):,}", f"{total / 2**20:.1f}")
    out.print(rows)
    out.print(f"at most {store.limit / 2**20:,.0f} MiB are kept", markup=False)
