"""Keys and tokens that vendors give a shape of their own, so that they can be recognised.

The shapes are those of the vendors' public documentation. Each `stop_at` lets through the fixed beginning
and a few random characters, so that a text may name a prefix (`ghp_`) or show a short placeholder
(`ghp_yourtoken`).
"""

from __future__ import annotations

from nco_guard.policy.presets.pattern import Examples, Pattern

__all__ = ["DESCRIPTION", "PATTERNS"]

DESCRIPTION = (
    "API keys, access tokens, private keys and connection strings of common clouds, code hosts, chat and "
    "payment services, model providers and package registries. Keys without a fixed shape are not covered."
)

_BEFORE = r"(?<![A-Za-z0-9])"
_ALNUM = "[A-Za-z0-9]"
_WORD = "[A-Za-z0-9_-]"
_HEX = "[0-9a-f]"
_BASE64 = "[A-Za-z0-9+/]"


def _fill(length: int, letters: str = "aB3dE5") -> str:
    """A made-up random part. Values are put together here so that no scanner takes this file for a leak."""
    return (letters * length)[:length]


def _token(
    name: str,
    prefix: str,
    *,
    characters: str,
    length: int,
    shown: int,
    description: str,
    source: str,
    written: tuple[str, ...],
    letters: str = "aB3dE5",
    no_match: tuple[str, ...] = (),
) -> Pattern:
    """A fixed beginning and then at least `length` random characters, of which `shown` may appear."""
    return Pattern(
        id=f"secrets.{name}",
        regex=f"{_BEFORE}{prefix}{characters}{{{length},}}",
        stop_at=f"{_BEFORE}{prefix}{characters}{{{shown + 1}}}",
        description=description,
        reveals=f"the first {shown} random characters of {length} or more",
        source=source,
        examples=Examples(
            match=(
                *(f"{begin}{_fill(length, letters)}" for begin in written),
                f"token={written[0]}{_fill(length + 3, letters)}.",
            ),
            no_match=(
                *(f"tokens begin with {begin}" for begin in written),
                f"x{written[0]}{_fill(length, letters)}",
                f"{written[0]}{_fill(shown, letters)} ...",
                *no_match,
            ),
            stop=tuple(f"{begin}{_fill(shown + 1, letters)}" for begin in written),
            gets_to=f"{written[0]}{_fill(shown, letters)}",
        ),
    )


_HEAD, _BODY = "eyJ" + _fill(17), "eyJ" + _fill(30)
_SCHEMES = "postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|clickhouse|cockroachdb"
_DATABASE = rf"{_BEFORE}(?i:(?:{_SCHEMES})(?:\+[a-z0-9]+)?)://[^\s:/@]*:"
# What documentation writes where a password would stand.
_PLACEHOLDER = r"(?!(?i:password|passwd|pass|pwd|secret|changeme|x+|\*+|\.+)@)"
_AWS_SECRET = r"(?i:aws[_ -]?secret[_ -]?key|secret[_ -]?access[_ -]?key)[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
_TELEGRAM = rf"{_BEFORE}[0-9]{{8,10}}:AA"
_DISCORD = rf"{_BEFORE}[MNO]{_WORD}{{22,27}}\.{_WORD}{{6}}\."
_SLACK_HOOK = r"hooks\.slack\.com/services/T[A-Za-z0-9_]{8,}/B[A-Za-z0-9_]{8,}/"
_SLACK_APP = rf"{_BEFORE}xapp-[0-9]-[A-Z0-9]+-[0-9]+-"
_SENDGRID = rf"{_BEFORE}SG\.{_WORD}{{22}}\."
_KEY_HEAD = "-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY"

_CLOUD = (
    _token(
        "aws_access_key_id",
        "A(?:KIA|SIA|BIA|CCA)",
        characters="[A-Z0-9]",
        length=16,
        shown=8,
        letters="EXAMPL7",
        description="AWS access key ids.",
        source="AWS IAM documentation, unique identifiers",
        written=("AKIA", "ASIA"),
        no_match=("ASIAN MARKETS", "AKIA is a prefix"),
    ),
    Pattern(
        id="secrets.aws_secret_access_key",
        regex=rf"{_AWS_SECRET}{_BASE64}{{40}}",
        stop_at=rf"{_AWS_SECRET}{_BASE64}{{17}}",
        description="AWS secret access keys that are assigned to a name that says so.",
        reveals="the first 16 characters of 40",
        source="AWS security credentials documentation",
        examples=Examples(
            match=(
                "aws_secret_access_key = wJalrXUtnFEMI/" + "K7MDENG/bPxRfiCYEXAMPLEKEY",
                '"SecretAccessKey": "' + _fill(40),
                "AWS_SECRET_KEY=" + _fill(40),
            ),
            no_match=(
                "aws_secret_access_key = os.environ['KEY']",
                "AWS_SECRET_ACCESS_KEY=your_key_here",
                "the secret access key: keep it safe",
                _fill(40),
            ),
            stop=("aws_secret_access_key=" + _fill(17),),
            gets_to="aws_secret_access_key = wJalrXUtnFEMI/" + "K7",
        ),
    ),
    _token(
        "gcp_api_key",
        "AIza",
        characters=_WORD,
        length=35,
        shown=12,
        description="Google API keys.",
        source="Google Cloud documentation, API keys",
        written=("AIza",),
    ),
    _token(
        "gcp_oauth_secret",
        "GOCSPX-",
        characters=_WORD,
        length=28,
        shown=12,
        description="Google OAuth client secrets.",
        source="Google Identity documentation, OAuth 2.0",
        written=("GOCSPX-",),
    ),
    _token(
        "azure_storage_key",
        "(?i:AccountKey)=",
        characters=_BASE64,
        length=86,
        shown=24,
        description="Azure storage account keys in connection strings.",
        source="Azure Storage documentation, connection strings",
        written=("AccountKey=",),
        no_match=("AccountKey=<key>;", "AccountKey=yourStorageAccountKey"),
    ),
    _token(
        "digitalocean_token",
        "do[opr]_v1_",
        characters=_HEX,
        length=64,
        shown=12,
        letters="a1b2c3",
        description="DigitalOcean tokens.",
        source="DigitalOcean API documentation",
        written=("dop_v1_", "doo_v1_"),
    ),
    _token(
        "databricks_token",
        "dapi",
        characters=_HEX,
        length=32,
        shown=12,
        letters="a1b2c3",
        description="Databricks personal access tokens.",
        source="Databricks documentation, authentication",
        written=("dapi",),
    ),
    _token(
        "vault_token",
        r"hv[sbr]\.",
        characters=_WORD,
        length=24,
        shown=12,
        description="HashiCorp Vault tokens.",
        source="Vault documentation, tokens",
        written=("hvs.", "hvb."),
    ),
)

_CODE = (
    _token(
        "github_token",
        "gh[opsru]_",
        characters=_ALNUM,
        length=36,
        shown=12,
        description="GitHub tokens: personal (classic), OAuth, app and refresh tokens.",
        source="GitHub documentation, token formats",
        written=("ghp_", "gho_", "ghs_", "ghu_", "ghr_"),
        no_match=("ghp_your_token_here",),
    ),
    _token(
        "github_pat",
        "github_pat_",
        characters="[A-Za-z0-9_]",
        length=82,
        shown=16,
        description="GitHub fine-grained personal access tokens.",
        source="GitHub documentation, token formats",
        written=("github_pat_",),
    ),
    _token(
        "gitlab_token",
        "gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-",
        characters=_WORD,
        length=20,
        shown=8,
        description="GitLab tokens: personal, deploy, runner, job, trigger, feed, mail, agent and others.",
        source="GitLab documentation, token overview",
        written=("glpat-", "gldt-", "glrt-"),
    ),
    _token(
        "npm_token",
        "npm_",
        characters=_ALNUM,
        length=36,
        shown=12,
        description="npm access tokens.",
        source="npm documentation, access tokens",
        written=("npm_",),
        no_match=("npm_config_registry", "npm_lifecycle_event"),
    ),
    _token(
        "pypi_token",
        "pypi-AgE[IN]",
        characters=_WORD,
        length=50,
        shown=20,
        description="PyPI and TestPyPI API tokens.",
        source="PyPI help, API tokens",
        written=("pypi-AgEI", "pypi-AgEN"),
    ),
    _token(
        "rubygems_key",
        "rubygems_",
        characters=_HEX,
        length=48,
        shown=12,
        letters="a1b2c3",
        description="RubyGems API keys.",
        source="RubyGems guides, API key scopes",
        written=("rubygems_",),
    ),
    _token(
        "docker_token",
        "dckr_[po]at_",
        characters=_WORD,
        length=27,
        shown=10,
        description="Docker Hub access tokens.",
        source="Docker documentation, access tokens",
        written=("dckr_pat_",),
    ),
)

_CHAT = (
    _token(
        "slack_token",
        "xox[abeoprs]-[0-9]",
        characters="[0-9A-Za-z-]",
        length=18,
        shown=11,
        letters="0123456789-",
        description="Slack bot, user, workspace and configuration tokens.",
        source="Slack documentation, token types",
        written=("xoxb-1", "xoxp-2"),
        no_match=("xoxb-your-bot-token-here",),
    ),
    Pattern(
        id="secrets.slack_app_token",
        regex=rf"{_SLACK_APP}{_ALNUM}{{20,}}",
        stop_at=rf"{_SLACK_APP}{_ALNUM}{{9}}",
        description="Slack app-level tokens.",
        reveals="the app's id and the first 8 random characters",
        source="Slack documentation, token types",
        examples=Examples(
            match=("xapp-1-A0000000000-0000000000000-" + _fill(64),),
            no_match=("xapp-1-A0000000000-0000000000000-", "xapp-your-token"),
            stop=("xapp-1-A0000000000-0000000000000-" + _fill(9),),
            gets_to="xapp-1-A0000000000-0000000000000-" + _fill(8),
        ),
    ),
    Pattern(
        id="secrets.slack_webhook",
        regex=rf"{_SLACK_HOOK}{_ALNUM}{{20,}}",
        stop_at=rf"{_SLACK_HOOK}{_ALNUM}{{7}}",
        description="Slack incoming webhook URLs.",
        reveals="the workspace's and the webhook's ids and the first 6 random characters",
        source="Slack documentation, incoming webhooks",
        examples=Examples(
            match=("https://hooks.slack.com/services/" + "T00000000/B00000000/" + "X" * 24,),
            no_match=(
                "https://hooks.slack.com/services/T000/B000/XXX",
                "https://hooks.slack.com/services/",
                "https://hooks.slack.com/services/" + "T00000000/B00000000/",
            ),
            stop=("https://hooks.slack.com/services/" + "T00000000/B00000000/" + "X" * 7,),
            gets_to="https://hooks.slack.com/services/" + "T00000000/B00000000/" + "X" * 6,
        ),
    ),
    Pattern(
        id="secrets.discord_bot_token",
        regex=rf"{_DISCORD}{_WORD}{{27,}}",
        stop_at=rf"{_DISCORD}{_WORD}{{9}}",
        description="Discord bot tokens: the bot's id, a time and a signature, joined by dots.",
        reveals="the bot's id, the time and the first 8 characters of the signature",
        source="Discord documentation, authentication",
        examples=Examples(
            match=(
                "M" + _fill(23) + ".G" + _fill(5) + "." + _fill(38),
                "bot=N" + _fill(25) + ".X" + _fill(5) + "." + _fill(27),
            ),
            no_match=(
                "M" + _fill(23) + ".G" + _fill(5),
                "www.example.com",
                "MyModule.method.call_with_arguments_here",
            ),
            stop=("M" + _fill(23) + ".G" + _fill(5) + "." + _fill(9),),
            gets_to="M" + _fill(23) + ".G" + _fill(5) + "." + _fill(8),
        ),
    ),
    Pattern(
        id="secrets.discord_webhook",
        regex=rf"discord(?:app)?\.com/api/webhooks/[0-9]{{17,20}}/{_WORD}{{60,}}",
        stop_at=rf"discord(?:app)?\.com/api/webhooks/[0-9]{{17,20}}/{_WORD}{{13}}",
        description="Discord webhook URLs.",
        reveals="the webhook's id and the first 12 random characters",
        source="Discord documentation, webhooks",
        examples=Examples(
            match=("https://discord.com/api/webhooks/" + "0" * 18 + "/" + _fill(68),),
            no_match=("https://discord.com/api/webhooks/", "https://discord.com/channels/1/2"),
            stop=("https://discord.com/api/webhooks/" + "0" * 18 + "/" + _fill(13),),
            gets_to="https://discord.com/api/webhooks/" + "0" * 18 + "/" + _fill(12),
        ),
    ),
    Pattern(
        id="secrets.telegram_bot_token",
        regex=rf"{_TELEGRAM}{_WORD}{{33}}",
        stop_at=rf"{_TELEGRAM}{_WORD}{{9}}",
        description="Telegram bot tokens: the bot's number, a colon, AA and 33 random characters.",
        reveals="the bot's number and the first 8 random characters",
        source="Telegram Bot API documentation",
        examples=Examples(
            match=("123456789:AA" + _fill(33), "bot token 1234567890:AA" + _fill(33) + "."),
            no_match=("12345678:AA", "10:30:45", "ratio 12345678:AAA batteries"),
            stop=("123456789:AA" + _fill(9),),
            gets_to="123456789:AA" + _fill(8),
        ),
    ),
)

_SERVICES = (
    _token(
        "stripe_key",
        "[rs]k_live_",
        characters=_ALNUM,
        length=24,
        shown=8,
        description="Stripe live secret and restricted keys.",
        source="Stripe documentation, API keys",
        written=("sk_live_", "rk_live_"),
        no_match=("pk_live_" + _fill(24), "sk_test_" + _fill(24)),
    ),
    _token(
        "stripe_webhook_secret",
        "whsec_",
        characters=_ALNUM,
        length=32,
        shown=10,
        description="Stripe webhook signing secrets.",
        source="Stripe documentation, webhooks",
        written=("whsec_",),
    ),
    _token(
        "shopify_token",
        "shp(?:at|ca|pa|ss|tka)_",
        characters="[0-9A-Fa-f]",
        length=32,
        shown=10,
        letters="a1b2c3",
        description="Shopify access tokens and shared secrets.",
        source="Shopify documentation, access token format",
        written=("shpat_", "shpss_"),
    ),
    Pattern(
        id="secrets.sendgrid_key",
        regex=rf"{_SENDGRID}{_WORD}{{43}}",
        stop_at=rf"{_SENDGRID}{_WORD}{{9}}",
        description="SendGrid API keys.",
        reveals="the key's id and the first 8 characters of its secret",
        source="SendGrid documentation, API keys",
        examples=Examples(
            match=("SG." + _fill(22) + "." + _fill(43),),
            no_match=("SG.", "Paris SG.", "SG." + _fill(22) + "."),
            stop=("SG." + _fill(22) + "." + _fill(9),),
            gets_to="SG." + _fill(22) + "." + _fill(8),
        ),
    ),
)

_MODELS = (
    Pattern(
        id="secrets.openai_key",
        regex=rf"{_BEFORE}sk-(?:(?:proj|svcacct|admin|None)-{_WORD}{{40,}}|{_ALNUM}{{40,}})",
        stop_at=rf"{_BEFORE}sk-(?:(?:proj|svcacct|admin|None)-{_WORD}{{17}}|{_ALNUM}{{17}})",
        description="OpenAI API keys, old and new, and keys of other services of the same shape.",
        reveals="the first 16 random characters of 40 or more",
        source="OpenAI API documentation",
        examples=Examples(
            match=(
                "sk-" + _fill(48),
                "sk-proj-" + _fill(74) + "_-" + _fill(40),
                "key: sk-svcacct-" + _fill(60),
            ),
            no_match=(
                "sk-...",
                "sk-proj-your-key",
                "pip install scikit-learn sk-learn",
                "risk-" + _fill(48),
                "class='sk-fading-circle'",
                "locale sk-SK",
            ),
            stop=("sk-" + _fill(17), "sk-proj-" + _fill(17)),
            gets_to="sk-" + _fill(16),
        ),
    ),
    _token(
        "anthropic_key",
        "sk-ant-[a-z]+[0-9]{2}-",
        characters=_WORD,
        length=80,
        shown=16,
        description="Anthropic API keys.",
        source="Anthropic API documentation",
        written=("sk-ant-api03-", "sk-ant-admin01-"),
    ),
    _token(
        "openrouter_key",
        "sk-or-v1-",
        characters=_HEX,
        length=64,
        shown=16,
        letters="a1b2c3",
        description="OpenRouter API keys.",
        source="OpenRouter documentation, authentication",
        written=("sk-or-v1-",),
    ),
    _token(
        "huggingface_token",
        "hf_",
        characters=_ALNUM,
        length=34,
        shown=14,
        description="Hugging Face user access tokens.",
        source="Hugging Face documentation, security tokens",
        written=("hf_",),
        no_match=("hf_hub_download", "hf_transfer"),
    ),
    _token(
        "groq_key",
        "gsk_",
        characters=_ALNUM,
        length=52,
        shown=16,
        description="Groq API keys.",
        source="Groq documentation",
        written=("gsk_",),
    ),
    _token(
        "xai_key",
        "xai-",
        characters=_ALNUM,
        length=70,
        shown=16,
        description="xAI API keys.",
        source="xAI documentation",
        written=("xai-",),
    ),
    _token(
        "perplexity_key",
        "pplx-",
        characters=_ALNUM,
        length=48,
        shown=16,
        description="Perplexity API keys.",
        source="Perplexity documentation",
        written=("pplx-",),
    ),
    _token(
        "replicate_token",
        "r8_",
        characters=_ALNUM,
        length=37,
        shown=14,
        description="Replicate API tokens.",
        source="Replicate documentation",
        written=("r8_",),
    ),
)

_GENERAL = (
    Pattern(
        id="secrets.private_key",
        regex=rf"{_KEY_HEAD}(?: BLOCK)?-----",
        stop_at=_KEY_HEAD,
        description="The first line of private keys in PEM, OpenSSH and PGP form.",
        reveals="a part of that line, nothing of the key",
        source="RFC 7468, RFC 9580",
        examples=Examples(
            match=(
                "-----BEGIN RSA " + "PRIVATE KEY-----",
                "-----BEGIN " + "PRIVATE KEY-----\nMIIE",
                "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
                "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----",
            ),
            no_match=("-----BEGIN PUBLIC KEY-----", "-----BEGIN CERTIFICATE-----", "a PRIVATE KEY"),
            stop=("-----BEGIN EC " + "PRIVATE KEY",),
            gets_to="-----BEGIN RSA PRIVATE KE",
        ),
    ),
    Pattern(
        id="secrets.jwt",
        regex=rf"{_BEFORE}eyJ{_WORD}{{10,}}\.eyJ{_WORD}{{10,}}\.",
        stop_at=rf"{_BEFORE}eyJ{_WORD}{{10,}}\.eyJ{_WORD}",
        description="JSON web tokens: a header and claims in Base64, and a signature, joined by dots.",
        reveals="the header, which holds no secret",
        source="RFC 7519",
        examples=Examples(
            match=(f"{_HEAD}.{_BODY}.{_fill(43)}", f"Bearer {_HEAD}.{_BODY}."),
            no_match=("eyJ...", f"{_HEAD}.", "eyJhbGciOi" + "JIUzI1NiJ9 is a header"),
            stop=(f"{_HEAD}.eyJa",),
            gets_to=f"{_HEAD}.eyJ",
        ),
    ),
    Pattern(
        id="secrets.database_url",
        regex=rf"{_DATABASE}{_PLACEHOLDER}[^\s/@]+@",
        stop_at=(rf"{_DATABASE}{_PLACEHOLDER}(?:[0-9]*[A-Za-z][A-Za-z0-9._~!$%^&*+=-]{{4}}|[^\s/@]+@)"),
        description=(
            "Connection URLs of databases and message queues with a password in them, except the "
            "placeholders that documentation uses (password, pass, pwd, secret, changeme, xxx, ***, ...)."
        ),
        reveals="four letters or digits of the password and the digits before them; of a password without "
        "letters, or with other characters among the first five, all up to the @",
        source="RFC 3986 and the drivers' documentation",
        examples=Examples(
            match=(
                "postgresql://app:hunter2example@db.example.com/main",
                "redis://:s3cr3t-example@localhost:6379/0",
                "mongodb+srv://u:12345678@cluster.example.net",
                "mysql+pymysql://root:p%40ss@127.0.0.1/x",
            ),
            no_match=(
                "postgres://user:password@localhost/db",
                "redis://localhost:6379/0",
                "mongodb://host1:27017,host2:27017/db",
                "postgres://localhost:PORT/db",
                "amqp://user:${PW}",
                "mysql://user@localhost/db",
                "http://example.com:8080/@x",
                "postgres://user:***@localhost",
            ),
            stop=("postgresql://app:hunte",),
            gets_to="postgresql://app:hunt",
        ),
    ),
)

PATTERNS = (*_CLOUD, *_CODE, *_CHAT, *_SERVICES, *_MODELS, *_GENERAL)
