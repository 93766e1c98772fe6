"""Finds personal data by patterns, one for each kind of data; matches are masked and counted.

Patterns find data with a fixed form: addresses, numbers with check digits. Names and stories have
no such form, so the remaining text may still be personal. Matches are not stored or logged, only
counted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HOOKS", "Hook", "mask_personal"]


class Hook(NamedTuple):
    """A kind of personal data: its name, its pattern, and a check of the pattern's matches.

    by_groups: if the check fails, drop the match's last group after a space and check again,
    because a word after the number may look like a group of digits.
    """

    kind: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool]
    by_groups: bool = False


def _always(_: str) -> bool:
    return True


def _luhn(found: str) -> bool:
    """Return whether digits end in Luhn's check digit, as payment card numbers do."""
    digits = [int(c) for c in found if c.isdecimal()]
    doubled = [d if n % 2 == 0 else d * 2 - 9 * (d > 4) for n, d in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0 and len(set(digits)) > 1


def _iban(found: str) -> bool:
    """Return whether a word is an IBAN: its remainder modulo 97 is 1 (ISO 13616).

    One in 97 other words has this remainder too. A word with lower-case letters must therefore
    consist of digits by at least half, as all examples of the registry do.
    """
    plain = "".join(found.split()).upper()
    if found != found.upper() and 2 * sum(c.isdecimal() for c in plain) < len(plain):
        return False
    turned = "".join(str(int(c, 36)) for c in plain[4:] + plain[:4])
    return int(turned) % 97 == 1


def _octets(found: str) -> bool:
    return all(int(part) < 256 for part in found.split("."))


def _phone(found: str) -> bool:
    """Return whether a match has 8 to 15 digits, 15 being the most by E.164 for phone numbers."""
    return 8 <= sum(c.isdecimal() for c in found) <= 15


# In this order: what one hook finds, the following hooks do not see.
HOOKS: tuple[Hook, ...] = (
    Hook(
        "email",
        re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}\b"),
        _always,
    ),
    Hook(
        "iban",
        re.compile(r"\b[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?\b"),
        _iban,
        True,
    ),
    Hook(
        "card",
        re.compile(
            r"(?<![\w.,/-])[3-6](?:\d{3}([ -]?)(?:\d{4}\1){2}\d{4}|\d{3}([ -]?)\d{6}\2\d{5})"
            r"(?![\w/-])"
        ),
        _luhn,
    ),
    Hook("ip", re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"), _octets),
    Hook(
        "ssn",
        re.compile(r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])"),
        _always,
    ),
    Hook(
        "phone",
        # International; (415) 555-2671 and 415-555-2671; 030 1234567.
        re.compile(
            # A group begins at a separator or a parenthesis: another split of a run of digits is
            # no other match, and is not tried. A colon after a letter ("Tel:") may stand in front;
            # one after a digit is part of a time. The digits of a second line (/72) belong to it.
            r"(?<![\w.,/-])(?<![\W\d_]:)"
            r"(?:(?:\+|00)[1-9]\d{0,14}(?:(?:[ .-]?\(|[ .-]|(?<=\)))\d{1,14}\)?){0,6}"
            r"|(?:\(\d{3}\) ?|\d{3}([ .-]))\d{3}[ .-]\d{4}"
            r"|\(?0\d{2,4}\)?[ /-]\d{4,8})(?:/\d{1,4}(?![\w/]))?(?![\w:-]|[.,]\d|/\d{1,4}/)"
        ),
        _phone,
    ),
)


def mask_personal(text: str) -> tuple[str, Counter[str]]:
    """Return a text with matches replaced by their kind, as ``<email>``, and counts by kind."""
    counts: Counter[str] = Counter()
    for hook in HOOKS:

        def replaced(match: re.Match[str], hook: Hook = hook) -> str:
            found, rest = match.group(), ""
            while not hook.check(found):
                shorter, space, group = found.rpartition(" ")
                if not (hook.by_groups and space):
                    return match.group()
                found, rest = shorter, f" {group}{rest}"
            counts[hook.kind] += 1
            return f"<{hook.kind}>{rest}"

        text = hook.pattern.sub(replaced, text)
    return text, counts
