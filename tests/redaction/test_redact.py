"""Secrets are cut out of texts, and nothing else is. Each secret here is put together from parts that are none."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsvc.redaction.placeholders import MARK
from memsvc.redaction.redact import Finding, find, redact

HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
ALNUM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF"
LONG = ALNUM + ALNUM[::-1]
PART = "eyJ" + "hbGciOiJub25lIn0"
PEM_BODY = "\n".join([ALNUM * 2, LONG, "Qw=="])

SHAPES = {
    "anthropic-key": ["sk-" + "ant-api03-" + ALNUM],
    "openai-key": ["sk-" + ALNUM, "sk-" + "proj-" + LONG, "sk-" + "svcacct-" + ALNUM, "sk-" + "admin-" + ALNUM],
    "github-token": [f"gh{kind}_" + ALNUM + "1234" for kind in "pousr"] + ["github_" + "pat_" + ALNUM + "_" + ALNUM],
    "gitlab-token": ["glp" + "at-" + ALNUM],
    "slack-token": [f"xox{kind}-" + "1234567890-" + ALNUM for kind in "abp"],
    "slack-app-token": ["xa" + "pp-1-A0-" + ALNUM],
    "aws-key": ["AK" + "IA" + "QWERTYUIOPASDFGH", "AS" + "IA" + "QWERTY2345ASDFGH"],
    "google-key": ["AI" + "za" + ALNUM + "abc"],
    "google-secret": ["GOC" + "SPX-" + ALNUM],
    "stripe-key": ["sk_" + "live_" + ALNUM, "rk_" + "live_" + ALNUM, "sk_" + "test_" + ALNUM],
    "webhook-secret": ["wh" + "sec_" + ALNUM],
    "npm-token": ["np" + "m_" + ALNUM + "1234"],
    "pypi-token": ["py" + "pi-" + "AgEIcHlwaS5vcmc" + LONG],
    "hugging-face-token": ["h" + "f_" + ALNUM],
    "sendgrid-key": ["S" + "G." + ALNUM[:22] + "." + LONG[:43]],
    "twilio-key": ["S" + "K" + HEX],
    "supabase-key": ["sb" + "p_" + HEX + "12345678", "sb_" + "secret_" + ALNUM],
    "digitalocean-token": ["dop" + "_v1_" + HEX + HEX],
    "shopify-token": ["shp" + "at_" + HEX],
    "databricks-token": ["da" + "pi" + HEX],
    "vault-token": ["hv" + "s." + ALNUM],
    "groq-key": ["gs" + "k_" + LONG],
    "heroku-key": ["HR" + "KU-" + LONG],
    "fly-token": ["fm" + "2_" + LONG],
    "vercel-token": ["vercel_" + "blob_rw_" + ALNUM[:16] + "_" + ALNUM],
    "netlify-token": ["nf" + "p_" + LONG],
    "doppler-token": [f"dp.{kind}." + LONG for kind in ("pt", "ct", "sa", "scim", "audit", "st")],
    "pulumi-token": ["pu" + "l-" + HEX + HEX],
    "airtable-token": ["pa" + "t" + ALNUM[:14] + "." + HEX + HEX],
    "dropbox-token": ["s" + "l." + LONG + LONG],
    "mailgun-key": ["ke" + "y-" + HEX],
    "launchdarkly-key": ["sd" + "k-" + "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0"],
    "resend-key": ["r" + "e_" + ALNUM[:8] + "_" + ALNUM],
    "neon-key": ["na" + "pi_" + LONG],
    "langsmith-key": ["lsv2" + "_pt_" + HEX + "_0123456789"],
    "posthog-key": ["ph" + "x_" + LONG],
    "cursor-key": ["ke" + "y_" + HEX + HEX],
    "jina-key": ["ji" + "na_" + LONG],
    "pinecone-key": ["pc" + "sk_" + LONG],
    "voyage-key": ["p" + "a-" + LONG],
    "tailscale-key": ["ts" + "key-auth-" + ALNUM[:12] + "-" + ALNUM],
    "1password-token": ["op" + "s_eyJ" + LONG],
    "buildkite-token": ["bk" + "ua_" + HEX + HEX],
    "circleci-token": ["CCI" + "PAT_" + ALNUM[:22] + "_" + HEX],
    "sonar-token": ["sq" + "p_" + HEX + HEX],
    "age-key": ["AGE-" + "SECRET-KEY-1" + LONG.upper()],
    "jwt": [f"{PART}.{PART}.{ALNUM}"],
    "telegram-token": [":AA" + ALNUM + "abc"],
    "private-key": [
        f"-----BEGIN {kind}PRIVATE KEY-----\n{PEM_BODY}\n-----END {kind}PRIVATE KEY-----"
        for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
    ],
}
BEFORE = {"telegram-token": "123456789"}
PASSWORD = "hunt" + "er2"
STRONG_PASSWORD = "S3cr" + "et!Pa55"

ASSIGNMENTS = [
    ("DB_PASSWORD={}", PASSWORD),
    ("DB_PASSWORD={}", "correct" + "horse"),
    ("export GITHUB_TOKEN={}", ALNUM),
    ("OPENAI_API_KEY='{}'", ALNUM),
    ("APP_PASS={}", PASSWORD),
    ("MY_SECRET={} make", "swordfish"),
    ("password={}", PASSWORD),
    ("password = {}", PASSWORD),
    ('"password": "{}"', PASSWORD),
    ('{{"password":"{}","user":"x"}}', PASSWORD),
    ('\\"password\\": \\"{}\\"', PASSWORD),
    ("password: {}", PASSWORD),
    ("Password: {}.", PASSWORD),
    ("**Password:** {}", STRONG_PASSWORD),
    ("passwd='{}'", "swordfish"),
    ("pwd={};", STRONG_PASSWORD),
    ("passphrase: '{}'", "correct" + "-horse-battery"),
    ("secret: {}", ALNUM),
    ("client_secret={}", ALNUM),
    ("clientSecret: '{}',", ALNUM),
    ('apiKey: "{}"', ALNUM),
    ("api-key={}", ALNUM),
    ("x-api-key: {}", HEX),
    ("my API key is {}", HEX),
    ("the password is {}", PASSWORD),
    ("the password is: {}", PASSWORD),
    ("Das Passwort ist {}", PASSWORD),
    ("Das Passwort lautet: {}", PASSWORD),
    ("access_token={}&x=1", ALNUM),
    ("https://h/?token={}&b=2", "abcdefgh" + "ijkl"),
    ("AWS_SECRET_ACCESS_KEY={}", ALNUM + "/" + "abcd+/12"),
    ("aws_secret_access_key = {}", ALNUM + "/" + "abcd+/12"),
    ("AccountKey={};", ALNUM + "=="),
    ("private_key: {}", ALNUM),
    ("credential={}", ALNUM),
    ("SECRET_KEY = '{}'", "django-" + "insecure-abc"),
    ("password: str = '{}'", PASSWORD),
    ('const password: string = "{}";', PASSWORD),
    ("mysql --password={} -u x", "swordfish"),
    ("login --password {} -u x", PASSWORD),
    ("tool --api-key {}", ALNUM),
    ("host=h password={} sslmode=require", "swordfish"),
    ("<password>{}</password>", "swordfish"),
    ("token: {}", "123e4567-" + "e89b-12d3-a456-426614174000"),
    ("token = '{}", ALNUM),
    ("Kennwort: {}", PASSWORD),
    ('if token == "{}":', ALNUM),
    ("config['password'] = '{}'", PASSWORD),
    ('PASSWORD="{}"', "two words " + "7"),
]

OTHERS = [
    ("https://hooks.zapier.com/hooks/catch/{}", "123456/" + "aB3dE6g", "zapier-webhook"),
    ("https://x.webhook.office.com/webhookb2/{}", "0f1e2d3c-" + "4b5a-4978@" + ALNUM, "teams-webhook"),
    ("secret_key_base: {}", HEX + HEX, "rails-secret"),
    ("https://a.blob.example/c?sv=2022-11-02&sig={}&se=1", LONG + "%3D", "azure-signature"),
    ("Authorization: SSWS {}", "00" + LONG, "authorization-key"),
    ("Authorization: ApiKey {}", LONG + "==", "authorization-key"),
    ("Cookie: {}", "sid=" + LONG + "; theme=dark", "cookie"),
    ("curl -H 'Cookie: {}' https://x", "sid=" + LONG, "cookie"),
    ("machine api.example login ada password {}", PASSWORD, "netrc-password"),
    (ALNUM[:14] + "{}", ".atlas" + "v1." + LONG, "terraform-token"),
    ('{{"auths": {{"r": {{"auth": "{}"}}}}}}', base64.b64encode(b"me:" + b"pw").decode(), "docker-login"),
    ("curl -s -u ada:{} https://x", PASSWORD, "curl-password"),
    ("curl --user 'ada:{}' https://x", "swordfish", "curl-password"),
    ("Authorization: Bearer {}", ALNUM, "bearer-token"),
    ("authorization: bearer {}", "abc.def" + "-ghi~1234567", "bearer-token"),
    ('-H "Authorization: Bearer {}"', HEX, "bearer-token"),
    ("Authorization: Basic {}", base64.b64encode(b"me:" + b"pw").decode(), "basic-credentials"),
    ("postgres://me:{}@db.example/x", "swordfish", "url-password"),
    ("redis://:{}@localhost:6379", "p@ss:w" + "ord", "url-password"),
    ("https://hooks.slack.com/services/{}", "T00000000/B0000" + "0000/" + ALNUM, "slack-webhook"),
    ("https://discord.com/api/webhooks/{}", "12345678/" + LONG, "discord-webhook"),
]

HARMLESS = """
the log line was `token=[REDACTED_SECRET]
token: bucket algorithm
token bucket in `orchard/limits.py`
mask the token by field name, not by length
the password is required
password: required
Password: must be at least 8 characters
the secret is to stop early
secret: none
keywords: mask, token, deploy/log.py
token = next(tokens)
password: str
password: str | None = None
def login(password: str, token: SecretStr) -> None:
connect(user=user, password=password)
connect(password=settings.password, token=self.token)
connect(password=user_password, retries=3)
verify(webhook_secret=webhook_secret or default)
api_key = os.environ["OPENAI_API_KEY"]
api_key=os.environ['OPENAI_API_KEY']
apiKey: process.env.OPENAI_API_KEY
token = config.get("token")
password = getpass.getpass()
secret := os.Getenv("SECRET")
token: ${{ secrets.GITHUB_TOKEN }}
password: "{{ vault_password }}"
TOKEN=$GITHUB_TOKEN
PASSWORD=${DB_PASSWORD}
PASSWORD=$(cat /run/secrets/db)
password=%(password)s
PGPASSWORD=<password>
OPENAI_API_KEY=your-api-key-here
OPENAI_API_KEY=sk-...
api_key: "YOUR_API_KEY"
password=********
password=xxxxxxxx
token=...
export TOKEN=
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
Authorization: Bearer YOUR_ACCESS_TOKEN
bearer of good news
basic authentication is off
Basic understanding of it
max_tokens: 4096
tokens=128000
token_count = 12345
next_page_token: null
"token": null, "secret": true, "password": false
{"token_type": "bearer", "expires_in": 3600}
password_file=/etc/app/password.txt
secret: /run/secrets/db1
PWD=/home/me/src1
commit 9de20788f3b1c2d4e5f60718293a4b5c6d7e8f90
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
secret: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
thread 01a22e3f-7cce-7910-be3e-87154d8441c3
123e4567-e89b-12d3-a456-426614174000
key: 9f86d081884c7d659a2feaa0c55ad015
primary_key: order_id2
sort key = created_at
password hashing: pbkdf2_sha256
the token is base64-encoded
API key: oauth2-client
the secret: v1.2.3-beta4
token => token.id
(token) => fetchUser2(token)
https://example.com:8080/path@v2
http://localhost:3000?next=a@b.example
git@github.com:me/repo.git
ssh://git@github.com/me/repo
postgres://me:<password>@db/x
postgres://me:$PASSWORD@db/x
postgres://user:password@localhost/db
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
sk-folding-cube-wrapper-inner-item
task-management-and-planning-overview
hf_transformers and npm_config_registry
SKU1234567890
eyJ is how a token begins
const tokenizer = new Tokenizer2("gpt")
`password`: the column with the hash
passwords: see the vault
compass=north1234
keyboard: qwertz12
monkey=business1
# secret
--token
--password-file /etc/x1
curl -u $USER:$PASSWORD https://x
das Passwort ist falsch
das Passwort lautet wie der Name
curl -sS https://x:8080/y -o z
docker run -u 1000:1000 curl
git push -u origin main:review
Cookie: name=value
the cookie: a=b is set
login ada password reset
patch.0f1e and path-0f1e
re_compile_pattern_with_many_words
key-value pairs and pa-yload
"auth": "none"
config=1&sig=short
sdk-and-tools
secret_key_base: <%= ENV %>
""".strip().split("\n")


def secrets() -> list[tuple[str, str]]:
    return [(rule, secret) for rule, listed in SHAPES.items() for secret in listed]


@pytest.mark.parametrize(("rule", "secret"), secrets())
@pytest.mark.parametrize(("head", "tail"), [("", ""), ("see ", " there"), ("`", "`"), ("\n(", ").\n"), ("a=", ";")])
def test_secrets_of_known_shape(rule: str, secret: str, head: str, tail: str) -> None:
    head += BEFORE.get(rule, "")
    redacted, (finding,) = redact(f"{head}{secret}{tail}")
    assert redacted == f"{head}{MARK}{tail}"
    assert (finding.rule, finding.starts_at, finding.ends_at) == (rule, len(head), len(head + secret))


@pytest.mark.parametrize(("line", "secret"), ASSIGNMENTS)
def test_values_of_telling_names(line: str, secret: str) -> None:
    redacted, findings = redact(line.format(secret))
    assert redacted == line.format(MARK)
    assert [finding.rule for finding in findings] == ["assignment"]


@pytest.mark.parametrize(("line", "secret", "rule"), OTHERS)
def test_secrets_in_headers_and_addresses(line: str, secret: str, rule: str) -> None:
    redacted, findings = redact(line.format(secret))
    assert redacted == line.format(MARK)
    assert [finding.rule for finding in findings] == [rule]


def test_there_are_many_harmless_lines() -> None:
    assert len(HARMLESS) > 40


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_lines_stay_as_they_are(line: str) -> None:
    assert redact(line) == (line, [])


def test_harmless_lines_stay_together_too() -> None:
    text = "\n".join(HARMLESS)
    assert redact(text) == (text, [])


def test_a_private_key_goes_as_a_whole_and_its_surroundings_stay() -> None:
    (key, *_) = SHAPES["private-key"]
    assert redact(f"before\n{key}\nafter")[0] == f"before\n{MARK}\nafter"
    escaped = key.replace("\n", "\\n")
    assert redact(f'{{"k": "{escaped}"}}')[0] == f'{{"k": "{MARK}"}}'


def test_a_private_key_that_is_cut_off_goes_as_far_as_it_is_one() -> None:
    begin = "-----BEGIN " + "RSA PRIVATE KEY-----"
    assert redact(f"{begin}\n{ALNUM}\n{LONG}\n\nplain text")[0] == f"{MARK}\n\nplain text"
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n"
    assert redact(f"{begin}\n{headers}\n{ALNUM}")[0] == MARK


def test_the_frame_of_a_private_key_alone_is_none() -> None:
    text = (
        "a file with -----BEGIN " + "PRIVATE KEY-----...-----END PRIVATE KEY----- in it, or -----BEGIN PRIVATE KEY-----"
    )
    assert redact(text) == (text, [])


def test_two_rules_on_one_secret_make_one_finding() -> None:
    token = "gh" + "p_" + LONG
    redacted, findings = redact(f"url = https://me:{token}@h\nTOKEN={token}-and-more\n")
    assert redacted == f"url = https://me:{MARK}@h\nTOKEN={MARK}\n"
    assert [(finding.rule, finding.line) for finding in findings] == [("github-token", 1), ("github-token", 2)]


def test_a_secret_that_hid_behind_another_is_found() -> None:
    (key, *_) = SHAPES["private-key"]
    (token,) = SHAPES["jwt"]
    redacted, findings = redact(key + token)
    assert redacted == MARK * 2
    assert [(key + token)[one.starts_at : one.ends_at] for one in findings] == [key, token]


def test_findings_tell_where_the_secrets_stood() -> None:
    text = f"one\r\npassword={PASSWORD}\n\n  TOKEN={ALNUM} and TOKEN={ALNUM}\n"
    assert find(text) == [
        Finding("assignment", text.index(PASSWORD), text.index(PASSWORD) + len(PASSWORD), 2),
        Finding("assignment", text.index(ALNUM), text.index(ALNUM) + len(ALNUM), 4),
        Finding("assignment", text.rindex(ALNUM), text.rindex(ALNUM) + len(ALNUM), 4),
    ]


def test_capital_letters_that_grow_when_made_small_move_nothing() -> None:
    assert redact(f"İİİ Password: {PASSWORD}\n")[0] == f"İİİ Password: {MARK}\n"


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "-",
        "=",
        "eyJ-",
        "sk-",
        "://a:",
        "token=",
        "token='",
        "Bearer ",
        "-----BEGIN PRIVATE KEY-----",
        " ",
        "\n",
        "A/",
    ],
)
def test_half_a_million_characters_of_one_kind(piece: str) -> None:
    redacted, _ = redact(piece * (500_000 // len(piece)))
    assert find(redacted) == []


PIECES = st.sampled_from(
    [
        *(
            "password",
            "TOKEN",
            "secret",
            "api_key",
            "--token",
            "DB_PASS",
            "=",
            ":",
            ": ",
            " = ",
            " is ",
            '"',
            "'",
            "`",
            "\\",
        ),
        *(
            "\n",
            " ",
            "&",
            ";",
            ",",
            ")",
            "(",
            ".",
            "[",
            "]",
            "<",
            ">",
            "://",
            "@",
            "$",
            MARK,
            "[REDACTED_",
            "SECRET]",
            "İ",
        ),
        *("Bearer ", "Basic ", "sk-", "eyJ", "ghp_", "AKIA", ALNUM, HEX, PASSWORD, "-----BEGIN " + "PRIVATE KEY-----"),
        *("-----END PRIVATE KEY-----", "word", "12345678", "é", "🦀"),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=6), max_size=30).map("".join)


@given(TEXTS)
def test_redacting_again_finds_nothing(text: str) -> None:
    redacted, _ = redact(text)
    assert redact(redacted) == (redacted, [])


@given(TEXTS)
def test_findings_stand_in_order_and_account_for_every_change(text: str) -> None:
    redacted, findings = redact(text)
    rebuilt, at = "", 0
    for finding in findings:
        assert at <= finding.starts_at < finding.ends_at <= len(text)
        assert finding.line == text.count("\n", 0, finding.starts_at) + 1
        rebuilt += text[at : finding.starts_at] + MARK
        at = finding.ends_at
    assert rebuilt + text[at:] == redacted
    assert findings == find(text)


KEYS = st.text(string.ascii_letters + string.digits, min_size=40, max_size=60).filter(
    lambda key: any(map(str.isdigit, key)) and len(set(key)) > 8
)


@given(
    st.sampled_from(["sk-", "sk-proj-", "ghp_", "glpat-", "xoxb-", "npm_", "hf_", "sk_live_", "TOKEN=", 'password: "']),
    KEYS,
    st.sampled_from(["", " ", "\n", "(", '"', "`", "x: ", "é", "--flag=", "https://h/"]),
    st.sampled_from(["", " ", "\n", '"', "`", ",", " and more", "&x=1", MARK]),
)
def test_no_secret_survives(prefix: str, key: str, before: str, behind: str) -> None:
    redacted, _ = redact(f"{before}{prefix}{key}{behind}")
    assert key not in redacted
    assert MARK in redacted
