"""Tokens that are known by their shape alone, wherever they stand: the prefixes that their issuers have published.

Issuers give their tokens a prefix so that scanners of public repositories find them; the list follows what those
scanners look for. Every alternative begins with its prefix, so a text that holds none costs one look at each word.
"""

from __future__ import annotations

import re

SECRET_SHAPES = re.compile(
    r"""\b(?:
      # code and packages
        gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,}
      | gl(?:pat|rt|dt|ptt|ft|imt|oas|soat|ffct|agent|cbt)-[\w-]{16,} | GR1348941[\w-]{16,}  # GitLab
      | ATATT3[\w=-]{20,} | ATBB[A-Za-z0-9]{28,}                  # Atlassian, Bitbucket
      | npm_\w{30,} | pypi-[\w-]{30,} | rubygems_[0-9a-f]{40,} | dckr_[po]at_[\w-]{16,}
      | AKCp[A-Za-z0-9]{40,} | cmVmd[A-Za-z0-9]{50,}              # Artifactory
      # machine learning
      | hf_[A-Za-z0-9]{16,} | api_org_[A-Za-z0-9]{16,}            # Hugging Face
      | sk-[\w-]{16,}                                             # OpenAI, Anthropic and others alike
      | gsk_[A-Za-z0-9]{40,} | xai-[A-Za-z0-9]{40,} | pplx-[A-Za-z0-9]{40,}
      | nvapi-[\w-]{20,} | r8_\w{20,}                             # NVIDIA, Replicate
      | wandb_v\d_\w{16,} | [0-9a-f]{40}(?![0-9a-f])              # W&B; a git hash looks the same: see is_revision
      | dapi[0-9a-f]{32}(?:-\d)? | pn[bu]_[A-Za-z0-9]{30,}        # Databricks, Prefect
      # clouds and infrastructure
      | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16} | ABSK[\w+/=]{40,}    # AWS
      | AIza[\w-]{30,} | ya29\.[\w-]{20,} | GOCSPX-[\w-]{20,}     # Google
      | [\w~.]{3}\dQ~[\w~.-]{31,34}                               # Azure
      | LTAI[A-Za-z0-9]{17,20}(?![A-Za-z0-9])                     # Alibaba
      | do[opr]_v1_[0-9a-f]{32,} | HRKU-AA[\w-]{40,}               # DigitalOcean, Heroku
      | v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}                         # Cloudflare
      | fo1_[\w-]{40,} | fm[12][ar]?_[\w+/=-]{60,}                # Fly
      | hv[sbr]\.[\w-]{20,} | s\.(?=[A-Za-z]{0,23}\d)[A-Za-z0-9]{24}(?![A-Za-z0-9])       # Vault
      | \w{14}\.atlasv1\.[\w=-]{60,} | pul-[0-9a-f]{40} | dp\.[a-z]{2,6}\.[\w.-]{40,}     # Terraform, Pulumi, Doppler
      | tskey-[\w-]{16,} | pscale_(?:tkn|pw|oauth)_[\w.=-]{32,}   # Tailscale, PlanetScale
      | ops_eyJ[\w+/=-]{60,} | AGE-SECRET-KEY-1[0-9A-Z]{58}       # 1Password, age
      # observing and telling
      | xox[abeprs]-[\w-]{10,} | xoxe\.xox[bp]-[\w-]{10,} | xapp-[\w-]{10,}               # Slack
      | \d{6,12}:AA[\w-]{30,} | SK[0-9a-f]{32}(?![0-9a-f])        # Telegram, Twilio
      | SG\.[\w-]{16,64}\.[\w-]{16,64} | xkeysib-[0-9a-f]{32,}[\w-]{0,40}                 # SendGrid, Brevo
      | glsa_\w{32,} | glc_[\w+/=-]{32,} | dt0[a-z]\d\d\.[A-Z0-9a-z]{24}\.[A-Za-z0-9]{64}  # Grafana, Dynatrace
      | sntry[su]_[\w+/=-]{40,} | NR(?:AK|RA|JS|II|AL)-[\w-]{19,} # Sentry, New Relic
      | lin_api_[A-Za-z0-9]{32,} | ntn_[A-Za-z0-9]{40,} | secret_[A-Za-z0-9]{43}(?!\w)    # Linear, Notion
      | PMAK-[0-9a-f]{24}-[0-9a-f]{34}                            # Postman
      | 00(?=[\w-]{0,39}[A-Z])(?=[\w-]{0,39}[a-z])[\w-]{40}(?![\w-])                     # Okta
      # payment and shops
      | (?:sk|rk)_(?:live|test)_\w{10,} | whsec_\w{16,} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} | sq0[a-z]{3}-[\w-]{22,}
      # JSON in base64: web tokens, and what others put an address or a key into
      | eyJ(?:[\w-]{8,400}\.[\w-]{8,4000}\.[\w-]* | [\w+/=-]{57,4000}(?:\.[\w-]{1,4000}){0,2})
    )""",
    re.VERBOSE,
)

_REVISION = re.compile(
    r"""(?:\b(?:commit|revision|rev|sha1?|HEAD|is[ ]now[ ]at|checkout|git[ _-]?(?:version|hash)|snapshots|tree|blob)
        ["']?[\s:=/]{1,3}["']? | \.git@)$""",
    re.IGNORECASE | re.VERBOSE,
)


def is_revision(match: re.Match[str]) -> bool:
    """Whether what was found is the hash of a commit, as what stands before it says."""
    before = match.string[max(0, match.start() - 24) : match.start()]
    return len(match[0]) == 40 and set(match[0]) <= set("0123456789abcdef") and bool(_REVISION.search(before))
