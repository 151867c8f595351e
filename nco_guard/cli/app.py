"""The commands and their options; what each does stands in a module of its own.

Exit status, for all commands: 0 for success, 1 where the answer is "no" (findings; a violation), 2 for
errors.
"""

from __future__ import annotations

import errno
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nco_guard.cli.output import fail, say, take_any_text
from nco_guard.errors import NCOGuardError
from nco_guard.visible import visible

__all__ = ["app"]


# What typer raises for options and arguments that it does not take, under whatever name it keeps the base class.
_USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]


class _Commands(TyperGroup):
    """Turns the errors that a user can cause into one message on stderr and exit status 2."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options."""
        take_any_text()
        try:
            return super().make_context(*args, **kwargs)
        except _USAGE_ERROR as error:
            raise _shown(error) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except _USAGE_ERROR as error:
            raise _shown(error) from None
        except NCOGuardError as error:
            fail(str(error))
        except OSError as error:
            if error.errno == errno.EPIPE or error.strerror is None:
                raise
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror}")


def _shown(error: Any) -> Any:
    """The error, to be printed by typer: arguments may be names of files, and those may be anything."""
    error.message = visible(error.message)
    return error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    # A pretty traceback can print local variables, and with them generated text.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

audit_app = typer.Typer(no_args_is_help=True, help="Check audit logs, anchor them, and report what they say.")
app.add_typer(audit_app, name="audit")

POLICY_HELP = "A YAML or JSON file, or presets by name: [bold]pii[/] or [bold]pii,ldnoobw[/]."
PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help=POLICY_HELP, show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Tokens to generate at most, per prompt.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers used for sampling.")]
Searched = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="UTF-8 text, JSON lines (.jsonl, .ndjson), either packed (.gz), folders; - is stdin.",
        show_default=False,
    ),
]
Field = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Of JSON lines only this field: [bold]user.name[/], [bold]messages.content[/]. Several times for "
        "several; without it all texts are searched.",
        show_default=False,
    ),
]


class ReportFormat(StrEnum):
    """How `nco-guard verify` prints findings."""

    text = "text"
    json = "json"
    sarif = "sarif"


class ReadAs(StrEnum):
    """What `nco-guard verify` takes files for."""

    text = "text"
    jsonl = "jsonl"


class WhenBlocked(StrEnum):
    """What happens where the model would complete a match."""

    mask = "mask"
    rewind = "rewind"


class BackTo(StrEnum):
    """How far texts go back."""

    match = "match"
    sentence = "sentence"
    text = "text"


OnBlocked = Annotated[
    WhenBlocked | None,
    typer.Option(
        help="Where a match would be completed: another token there, or back to where it began. Else as the policy "
        "says.",
        show_default=False,
    ),
]
FarBack = Annotated[
    BackTo | None,
    typer.Option(help="How far texts go back; not with --when-blocked mask.", show_default=False),
]
PerMatch = Annotated[int | None, typer.Option(min=0, help="How often back to one place; 0: no limit.")]
PerText = Annotated[int | None, typer.Option(min=0, help="How often back in a text; 0: no limit.")]
DigestKey = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="The bytes of a secret, 16 or more: the policy's digest is keyed with it, in the log and with --json.",
        show_default=False,
    ),
]


class Schema(StrEnum):
    """What `nco-guard schema` can print."""

    policy = "policy"
    events = "events"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"nco-guard {version('nco-guard')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Makes a language model unable to write what its owner forbids.

    Exit status: 0 success, 1 findings or a violation, 2 an error.
    """


@app.command()
def demo(
    samples: Annotated[int, typer.Option(min=1, help="Texts per policy, with and without the guard.")] = 28,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts generated together.")] = 4,
    max_new_tokens: MaxNewTokens = 96,
    seed: Seed = 0,
    show: Annotated[int, typer.Option(min=0, help="Pairs of texts to print per policy.")] = 3,
    audit: Annotated[Path, typer.Option(metavar="PATH", help="Append the audit log here.")] = Path(
        "nco-guard-audit.jsonl"
    ),
    as_json: AsJson = False,
) -> None:
    """Run the small model that ships, without and with the guard, under two policies.

    Exit status 1 if the guard let anything through.
    """
    from nco_guard.cli.demo import DemoSettings, run_demo

    settings = DemoSettings(
        samples=samples, batch_size=batch_size, max_new_tokens=max_new_tokens, seed=seed, show=show
    )
    raise typer.Exit(run_demo(settings, audit=audit, as_json=as_json))


@app.command()
def generate(
    model: Annotated[
        Path,
        typer.Option(metavar="PATH", help="Folder of a causal model of transformers.", show_default=False),
    ],
    policy: Annotated[str, typer.Option(metavar="POLICY", help=POLICY_HELP, show_default=False)],
    prompt: Annotated[
        list[str] | None, typer.Option(help="A prompt; may be given several times.", show_default=False)
    ] = None,
    prompt_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A file with one prompt per line; - is stdin.", show_default=False),
    ] = None,
    max_new_tokens: MaxNewTokens = 64,
    sample: Annotated[
        bool, typer.Option("--sample/--greedy", help="Sample, or take the most likely token.")
    ] = False,
    temperature: Annotated[float, typer.Option(min=0.01, help="Temperature, with --sample.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.01, max=1.0, help="Nucleus, with --sample.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Candidates, with --sample; 0 for all.")] = 0,
    seed: Seed = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts generated together.")] = 8,
    chat: Annotated[
        bool, typer.Option("--chat", help="Put each prompt into the tokenizer's chat template.")
    ] = False,
    when_blocked: OnBlocked = None,
    back_to: FarBack = None,
    per_match: PerMatch = None,
    per_text: PerText = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Append the audit log here.", show_default=False)
    ] = None,
    digest_key: DigestKey = None,
    as_json: AsJson = False,
) -> None:
    """Generate with a local model under a policy; nothing is downloaded."""
    from nco_guard.cli.generate import GenerateSettings, run_generate

    settings = GenerateSettings(
        max_new_tokens=max_new_tokens,
        sample=sample,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        batch_size=batch_size,
        chat=chat,
        when_blocked=None if when_blocked is None else when_blocked.value,
        back_to=None if back_to is None else back_to.value,
        per_match=per_match,
        per_text=per_text,
    )
    prompts = [*(prompt or []), *_lines(prompt_file)]
    code = run_generate(model, policy, prompts, settings, audit=audit, digest_key=digest_key, as_json=as_json)
    raise typer.Exit(code)


def _lines(path: Path | None) -> list[str]:
    from nco_guard.cli.inputs import read_text

    return [] if path is None else [line for line in read_text(str(path)).splitlines() if line.strip()]


@app.command()
def check(
    policy: PolicyArgument,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Bind to this tokenizer too: a folder, or a tokenizer.json.",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="UTF-8 text that should pass, line by line: how much of it is forbidden, and what would forbid less. "
            "May be given several times; - is stdin.",
            show_default=False,
        ),
    ] = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="Cut the corpus into sentences.")] = False,
    show: Annotated[
        int, typer.Option(min=0, help="Print so many texts of the corpus for each rule that forbids them.")
    ] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit status 1 if there is a warning.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say what was not decided too: proofs have bounds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Load, compile and review a policy: its rules, digest and warnings; with a tokenizer also sizes and times.

    Warnings are proved or measured: rules that are redundant, contradictory, never match, or cost much.
    """
    from nco_guard.cli.check import CheckSettings, run_check

    settings = CheckSettings(
        tokenizer=tokenizer,
        corpus=tuple(corpus or ()),
        sentences=sentences,
        show=show,
        strict=strict,
        verbose=verbose,
    )
    raise typer.Exit(run_check(policy, settings, as_json=as_json))


@app.command()
def explain(
    policy: PolicyArgument,
    tokenizer: Annotated[
        Path,
        typer.Option(metavar="PATH", help="A folder, or a tokenizer.json.", show_default=False),
    ],
    text: Annotated[str, typer.Option(help="The text so far.")] = "",
    prompt: Annotated[
        str | None, typer.Option(help="What the text continues, for rules that read it.", show_default=False)
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            help="Explain this token, by id or text; may be given several times.", show_default=False
        ),
    ] = None,
    remaining: Annotated[
        int | None,
        typer.Option(min=0, help="How many tokens may follow the next one.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Forbidden tokens to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """After a text: which tokens are forbidden, by which rule, because of which match that is under way.

    Exit status 1 if the text breaks the policy already: then it is said where and why.
    """
    from nco_guard.cli.explain import ExplainSettings, run_explain

    settings = ExplainSettings(
        text=text, prompt=prompt, tokens=tuple(token or ()), remaining=remaining, limit=limit
    )
    raise typer.Exit(run_explain(policy, tokenizer, settings, as_json=as_json))


@app.command()
def verify(
    policy: PolicyArgument,
    paths: Searched,
    field: Field = None,
    glob: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Of folders only files like this: [bold]*.md[/], [bold]logs/*[/].",
            show_default=False,
        ),
    ] = None,
    read_as: Annotated[
        ReadAs | None,
        typer.Option("--as", help="Read all files as this, whatever their names.", show_default=False),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one for each core.")] = 1,
    redact: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            help="Write copies without matches of hard rules: into this folder, or to this file for one file.",
            show_default=False,
        ),
    ] = None,
    replacement: Annotated[
        str | None,
        typer.Option(
            help="What stands in the copies where a match was; without it \\[redacted], or where the policy forbids "
            "this, another text.",
            show_default=False,
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print what matched too.")] = False,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="How findings are printed.")
    ] = ReportFormat.text,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Search finished texts: where each rule matches, not what it matched.

    Exit status: 0 no hard rule matches, 1 findings, 2 an error (a file or a line that cannot be read).
    """
    from nco_guard.cli.verify import VerifySettings, run_verify

    settings = VerifySettings(
        fields=tuple(field or ()),
        globs=tuple(glob or ()),
        form=read_as.value if read_as is not None else None,
        jobs=jobs,
        format="json" if as_json else output.value,
        show=show,
        redact=redact,
        replacement=replacement,
    )
    raise typer.Exit(run_verify(policy, paths, settings))


@app.command()
def presets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this one in detail.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the presets that ship, or the rules and options of one."""
    from nco_guard.cli.check import run_presets

    run_presets(name, as_json=as_json)


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything that is kept.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="This folder; else that of NCO_GUARD_CACHE, else the platform's.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or clear what guards with a cache have kept on disk."""
    from nco_guard.cli.cache import run_cache

    run_cache(folder, clear=clear, as_json=as_json)


@app.command()
def schema(
    what: Annotated[
        Schema, typer.Argument(help="Of policy files, or of the audit log's lines.")
    ] = Schema.policy,
) -> None:
    """Print a JSON Schema."""
    from nco_guard.cli.check import run_schema

    run_schema(events=what is Schema.events)


LogArgument = Annotated[
    Path,
    typer.Argument(
        metavar="LOG", help="The log's file; those rotated from it are read first.", show_default=False
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key", metavar="PATH", help="Ed25519 key in PEM, or bytes of an HMAC key.", show_default=False
    ),
]
AnchorsOption = Annotated[
    list[Path] | None,
    typer.Option("--anchors", metavar="PATH", help="Anchors that must hold.", show_default=False),
]
AllowOpenOption = Annotated[
    bool,
    typer.Option(
        "--allow-open",
        help="The log is in use: chains without an end are no problem, nor are lines after their last signature.",
    ),
]
ArchivedOption = Annotated[
    bool,
    typer.Option(
        "--archived",
        help="Older files were put away: the log may begin where one of the anchors ends, and only there.",
    ),
]


@audit_app.command("verify")
def audit_verify(
    log: LogArgument,
    key: KeyOption = None,
    anchors: AnchorsOption = None,
    allow_open: AllowOpenOption = False,
    archived: ArchivedOption = False,
    as_json: AsJson = False,
) -> None:
    """Find edited, removed, moved and cut off lines of a log, and missing files; say what cannot be told.

    Exit status: 0 what is here is as it was written, 1 it is not, 2 an error (a file that cannot be read).
    """
    from nco_guard.cli.audit import run_audit_verify

    raise typer.Exit(
        run_audit_verify(log, key, anchors or [], allow_open=allow_open, archived=archived, as_json=as_json)
    )


@audit_app.command("anchor")
def audit_anchor(
    log: LogArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="PATH", help="Append the anchor here.", show_default=False),
    ],
    key: KeyOption = None,
    anchors: AnchorsOption = None,
    archived: ArchivedOption = False,
    rotated: Annotated[
        bool,
        typer.Option(
            "--rotated", help="Anchor the rotated files alone: what --archived needs once they are put away."
        ),
    ] = False,
) -> None:
    """Verify a log and write down the heads of its chains, signed if there is a key: to be kept elsewhere.

    Exit status: 0 written, 1 the log is not as it was written, 2 an error.
    """
    from nco_guard.cli.audit import run_audit_anchor

    raise typer.Exit(run_audit_anchor(log, output, key, anchors or [], archived=archived, rotated=rotated))


@audit_app.command("digest")
def audit_digest(
    policy: PolicyArgument,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="PATH",
            help="The bytes of the digest key that the log's guards have; without it the plain SHA-256.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print a policy's digest as a log has it, to see which runs were under that policy."""
    from nco_guard.cli.audit import run_audit_digest

    run_audit_digest(policy, key)


@audit_app.command("report")
def audit_report(
    log: LogArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Write the page (HTML) here.", show_default=False
        ),
    ] = None,
    key: KeyOption = None,
    anchors: AnchorsOption = None,
    allow_open: AllowOpenOption = False,
    archived: ArchivedOption = False,
    events: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many events the page's table has: the last, and before all violations, dead ends, errors.",
        ),
    ] = 100_000,
    exposure_from: Annotated[
        int,
        typer.Option(min=1, help="From how many characters of a would-be match on a text counts as exposed."),
    ] = 8,
    as_json: AsJson = False,
) -> None:
    """Show what a log says, as one page that needs no network: what was prevented, where, and whether the log is whole.

    LOG may be a database of SqliteSink too. Exit status: 0 the log is as it was written; 1 it is not, or nobody can
    tell: the report is made all the same, and says so; 2 an error.
    """
    from nco_guard.cli.audit import run_audit_report

    if output is None and not as_json:
        raise NCOGuardError("give -o PATH for the page, or --json for its numbers")
    raise typer.Exit(
        run_audit_report(
            log,
            output,
            key,
            anchors or [],
            allow_open=allow_open,
            archived=archived,
            max_events=events,
            exposure_from=exposure_from,
            as_json=as_json,
        )
    )
