"""Secrets that are known by how they look."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from memsvc.redaction.placeholders import is_placeholder

Found = tuple[int, int, str]
"""Start, end and rule of a secret."""

_ALNUM = r"[A-Za-z0-9]"
_URL64 = r"[A-Za-z0-9_-]"
# Most prefixes hold such a character: three characters tell at once which of them a text cannot have.
_SIGN = re.compile(r"[-_./](?<=(...))")
_NO_WORD = re.compile(r"[A-Za-z]{16}")
# The words of a command up to curl's user; at most twenty, so that a long line costs no more than a short one.
_CURL_USER = r"(?:[ \t]++(?!-u|--user)\S++){0,20}+[ \t]++(?:-u|--user)[ \t=]?[\"']?[^\s:\"'$]++"


def _is_key(value: str) -> bool:
    """Words have no digits, do not change between capitals and small letters, and are not that long."""
    mixed = any(map(str.isdigit, value)) or (value.lower() != value and value.upper() != value)
    return (mixed or bool(_NO_WORD.search(value))) and not is_placeholder(value)


def _is_set(value: str) -> bool:
    return not is_placeholder(value)


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value, validate=True)
    except binascii.Error:
        return False


def _is_url_password(value: str) -> bool:
    return not is_placeholder(value) and not re.match(r"\d{1,5}[?#]", value)


@dataclass(frozen=True)
class _Shape:
    """Secrets of one kind. The last group of the pattern is the secret, or else the whole match is."""

    rule: str
    prefix: str
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] = _is_key

    @cached_property
    def sign(self) -> str:
        """The first part of the prefix that a text is searched for once on behalf of all shapes; '' for none."""
        found = _SIGN.search(self.prefix)
        return found[1] if found else ""


def _shape(
    rule: str, prefix: str, body: str, *, apart: str = _ALNUM, is_secret: Callable[[str], bool] = _is_key
) -> _Shape:
    """
    A secret that begins with `prefix`, where no character of `apart` stands before it.

    The look-behind comes after the prefix, so that the search can run for the literal. The body takes all that could
    belong to the secret: then no search starts twice within one run, and time stays linear.
    """
    literal = re.escape(prefix)
    return _Shape(rule, prefix, re.compile(f"{literal}(?<!{apart}{literal}){body}"), is_secret)


_PREFIXES = {
    "anthropic-key": (("sk-ant-",), rf"{_URL64}{{16,}}"),
    "openai-key": (("sk-",), rf"{_URL64}{{20,}}"),
    "github-token": (("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), r"[A-Za-z0-9_]{22,}"),
    "gitlab-token": (("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glsoat-", "glft-"), rf"{_URL64}{{20,}}"),
    "slack-token": (("xox",), r"[abceoprs]-[A-Za-z0-9-]{10,}"),
    "slack-app-token": (("xapp-",), r"[A-Za-z0-9-]{10,}"),
    "slack-webhook": (("hooks.slack.com/",), r"(?:services|workflows)/([A-Za-z0-9/]{20,})"),
    "google-key": (("AIza",), rf"{_URL64}{{35,}}"),
    "google-secret": (("GOCSPX-", "ya29."), rf"{_URL64}{{20,}}"),
    "stripe-key": (("sk_live_", "sk_test_", "rk_live_", "rk_test_"), rf"{_ALNUM}{{16,}}"),
    "webhook-secret": (("whsec_",), r"[A-Za-z0-9+/=]{20,}"),
    "npm-token": (("npm_",), rf"{_ALNUM}{{30,}}"),
    "pypi-token": (("pypi-",), rf"{_URL64}{{40,}}"),
    "rubygems-key": (("rubygems_",), r"[0-9a-f]{40,}"),
    "docker-token": (("dckr_pat_", "dckr_oat_"), rf"{_URL64}{{20,}}"),
    "hugging-face-token": (("hf_",), rf"{_ALNUM}{{30,}}"),
    "sendgrid-key": (("SG.",), rf"{_URL64}{{16,}}\.{_URL64}{{16,}}"),
    "twilio-key": (("SK",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    "supabase-key": (("sbp_", "sb_secret_"), rf"{_URL64}{{16,}}"),
    "digitalocean-token": (("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{40,}"),
    "shopify-token": (("shpat_", "shpss_", "shpca_", "shppa_"), rf"{_ALNUM}{{30,}}"),
    "square-token": (("sq0atp-", "sq0csp-"), rf"{_URL64}{{20,}}"),
    "databricks-token": (("dapi",), r"[0-9a-f]{32}(?:-\d+)?(?![A-Za-z0-9])"),
    "vault-token": (("hvs.", "hvb."), rf"{_URL64}{{20,}}"),
    "grafana-token": (("glsa_", "glc_"), r"[A-Za-z0-9_+/=]{30,}"),
    "atlassian-token": (("ATATT3",), r"[A-Za-z0-9_=-]{30,}"),
    "linear-key": (("lin_api_", "lin_oauth_"), rf"{_ALNUM}{{30,}}"),
    "notion-token": (("ntn_",), rf"{_ALNUM}{{30,}}"),
    "postman-key": (("PMAK-",), r"[A-Za-z0-9-]{30,}"),
    "planetscale-token": (("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[A-Za-z0-9_.=-]{30,}"),
    "sentry-token": (("sntrys_", "sntryu_"), r"[A-Za-z0-9_+/=-]{30,}"),
    "new-relic-key": (("NRAK-",), rf"{_ALNUM}{{20,}}"),
    "groq-key": (("gsk_",), rf"{_ALNUM}{{30,}}"),
    "xai-key": (("xai-",), rf"{_ALNUM}{{30,}}"),
    "perplexity-key": (("pplx-",), rf"{_ALNUM}{{30,}}"),
    "replicate-token": (("r8_",), rf"{_ALNUM}{{30,}}"),
    "nvidia-key": (("nvapi-",), rf"{_URL64}{{30,}}"),
    "tavily-key": (("tvly-",), rf"{_URL64}{{20,}}"),
    "figma-token": (("figd_",), rf"{_URL64}{{30,}}"),
    "heroku-key": (("HRKU-",), rf"{_URL64}{{30,}}"),
    "fly-token": (("fm1r_", "fm2_", "fo1_"), r"[A-Za-z0-9_+/=-]{30,}"),
    "vercel-token": (("vercel_blob_rw_",), r"[A-Za-z0-9_]{30,}"),
    "netlify-token": (("nfp_", "nfc_"), rf"{_ALNUM}{{30,}}"),
    "doppler-token": (("dp.pt.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit.", "dp.st."), r"[A-Za-z0-9_.-]{32,}"),
    "pulumi-token": (("pul-",), r"[0-9a-f]{40,}"),
    "airtable-token": (("pat",), rf"{_ALNUM}{{14}}\.[0-9a-f]{{64,}}"),
    "dropbox-token": (("sl.",), rf"{_URL64}{{100,}}"),
    "mailgun-key": (("key-",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    "launchdarkly-key": (("sdk-", "mob-"), r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    "resend-key": (("re_",), rf"{_ALNUM}{{8}}_{_ALNUM}{{20,}}"),
    "neon-key": (("napi_",), rf"{_ALNUM}{{40,}}"),
    "langsmith-key": (("lsv2_pt_", "lsv2_sk_"), r"[0-9a-f]{32}_[0-9a-f]{10,}"),
    "posthog-key": (("phx_",), rf"{_ALNUM}{{40,}}"),
    "cursor-key": (("key_",), r"[0-9a-f]{64,}"),
    "jina-key": (("jina_",), rf"{_URL64}{{40,}}"),
    "pinecone-key": (("pcsk_",), r"[A-Za-z0-9_]{40,}"),
    "voyage-key": (("pa-",), rf"{_URL64}{{40,}}"),
    "tailscale-key": (("tskey-",), r"[a-z]+-[A-Za-z0-9-]{20,}"),
    "1password-token": (("ops_eyJ",), r"[A-Za-z0-9_+/=-]{40,}"),
    "buildkite-token": (("bkua_",), r"[0-9a-f]{40,}"),
    "circleci-token": (("CCIPAT_", "CCIPRJ_"), r"[A-Za-z0-9_]{40,}"),
    "sonar-token": (("sqp_", "squ_", "sqa_"), r"[0-9a-f]{40,}"),
    "zapier-webhook": (("hooks.zapier.com/hooks/catch/",), r"([A-Za-z0-9/]{8,})"),
    "teams-webhook": (("webhook.office.com/webhookb2/",), r"([A-Za-z0-9@/-]{30,})"),
    "rails-secret": (("secret_key_base",), r"[ \t]*+[:=][ \t]*+[\"']?([0-9a-f]{64,})"),
    "azure-signature": (("sig=",), r"([A-Za-z0-9%+/=_-]{40,})"),
    "bearer-token": (("Bearer", "bearer", "BEARER"), r"[ \t:=]++([A-Za-z0-9._~+/=-]{15,}[A-Za-z0-9_~+/=-])"),
    "authorization-key": (("ApiKey", "SSWS"), r"[ \t]++([A-Za-z0-9._~+/=-]{15,}[A-Za-z0-9_~+/=-])"),
    "cookie": (("Cookie", "cookie"), r":[ \t]*+([A-Za-z0-9_.-]++=[A-Za-z0-9%_.~+/=-]{16,}(?:;[ \t]*+[^\s;\"'`]++)*+)"),
    "netrc-password": (("login",), r"[ \t]++\S++\s++password[ \t]++(\S{4,})"),
}
_SHAPES = (
    *(_shape(rule, prefix, body) for rule, (prefixes, body) in _PREFIXES.items() for prefix in prefixes),
    *(_shape("aws-key", prefix, r"[A-Z0-9]{16,}", is_secret=_is_set) for prefix in ("AKIA", "ASIA")),
    _shape("age-key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{40,}", is_secret=_is_set),
    _shape("jwt", "eyJ", rf"{_URL64}{{8,}}\.eyJ{_URL64}{{8,}}\.{_URL64}{{8,}}", apart=_URL64),
    _shape("telegram-token", ":AA", rf"(?<=\d{{8}}:AA){_URL64}{{32,}}", apart=r"\D"),
    _shape("discord-webhook", "/api/webhooks/", rf"(\d{{5,}}/{_URL64}{{20,}})", apart=r"\s"),
    _shape("basic-credentials", "Basic", r"[ \t]++([A-Za-z0-9+/]{6,}={0,2})", is_secret=_is_basic),
    _shape("terraform-token", ".atlasv1.", rf"{_URL64}{{40,}}", apart=r"\s"),
    _shape("docker-login", '"auth"', r"[ \t]*+:[ \t]*+\"([A-Za-z0-9+/]{6,}={0,2})", is_secret=_is_basic),
    _shape("curl-password", "curl", rf"{_CURL_USER}:([^\s\"'`]{{4,}})", is_secret=_is_set),
    _shape("url-password", "://", r"[^\s/?#@:'\"`<>]*+:([^\s/'\"`<>]+)@", apart=r"\s", is_secret=_is_url_password),
)

_PEM_BEGINS = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")
_PEM_CUT_OFF = re.compile(
    r"(?:\s*+(?:Proc-Type|DEK-Info|Version|Comment): [^\n]*+)*+(?:(?:\s|\\n)*+[A-Za-z0-9+/=]{16,}+)++"
)
_PEM_BODY = re.compile(r"[A-Za-z0-9+/=]{16}")
_LONGEST_PEM = 20_000


def find(text: str) -> Iterator[Found]:
    """The secrets of known shape, rule by rule; they may overlap."""
    signs = set(_SIGN.findall(text))
    for shape in _SHAPES:
        if (shape.sign and shape.sign not in signs) or shape.prefix not in text:
            continue
        for match in shape.pattern.finditer(text):
            group = match.lastindex or 0
            if shape.is_secret(match[group]):
                yield match.start(group), match.end(group), shape.rule
    yield from _private_keys(text)


def _private_keys(text: str) -> Iterator[Found]:
    begins = list(_PEM_BEGINS.finditer(text))
    limits = [*(begin.start() for begin in begins[1:]), len(text)]
    for begin, limit in zip(begins, limits, strict=False):
        end = _PEM_ENDS.search(text, begin.end(), min(limit, begin.end() + _LONGEST_PEM))
        end = end or _PEM_CUT_OFF.match(text, begin.end(), limit)
        if end and _PEM_BODY.search(text, begin.end(), end.end()):
            yield begin.start(), end.end(), "private-key"
