"""Text encodings that a load may name.

Python knows more codecs than there are encodings of files. Some are no encodings (`hex`, `rot13`, `unicode_escape`),
and some take quadratic time: 4 MB of `punycode` took 52 s, of `idna` 14 s, of each one below at most 0.3 s. A name is
looked up here and not by `codecs.lookup`, which caches every name.
"""

from __future__ import annotations

import codecs
import re
from difflib import get_close_matches
from encodings.aliases import aliases

from frazil.errors import InvalidInput

UTF8 = "utf-8"
ALLOWED = (
    "utf_8 utf_8_sig utf_16 utf_16_le utf_16_be utf_32 utf_32_le utf_32_be ascii "
    "iso8859_1 iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 "
    "iso8859_13 iso8859_14 iso8859_15 iso8859_16 "
    "cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 "
    "cp437 cp720 cp737 cp775 cp850 cp852 cp855 cp857 cp858 cp860 cp861 cp862 cp863 cp864 cp865 cp866 cp869 cp874 "
    "cp1125 cp037 cp273 cp424 cp500 cp875 cp1026 cp1140 "
    "koi8_r koi8_u koi8_t kz1048 ptcp154 tis_620 hp_roman8 "
    "mac_roman mac_latin2 mac_cyrillic mac_greek mac_turkish mac_iceland mac_croatian mac_romanian mac_arabic "
    "gb2312 gbk gb18030 hz big5 big5hkscs cp950 "
    "shift_jis shift_jis_2004 shift_jisx0213 cp932 euc_jp euc_jis_2004 euc_jisx0213 "
    "iso2022_jp iso2022_jp_1 iso2022_jp_2 iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext "
    "euc_kr cp949 johab iso2022_kr"
).split()
_BY_NAME = {name: name for name in ALLOWED} | {alias: name for alias, name in aliases.items() if name in ALLOWED}
_BY_NAME |= {"latin_1": "iso8859_1", "utf8": "utf_8"}
_BY_NAME |= {name.replace("iso8859", "iso_8859"): name for name in ALLOWED if name.startswith("iso8859")}
_LONGEST = 40


def known_encoding(name: str) -> str:
    """The name of an encoding as Python spells it, or `InvalidInput`."""
    found = _BY_NAME.get(_plain(name)) if len(name) <= _LONGEST else None
    if found is None:
        raise _refused(name)
    spelled = codecs.lookup(found).name
    return UTF8 if spelled == "utf-8-sig" else spelled


def _plain(name: str) -> str:
    return re.sub(r"[-. ]", "_", name.strip().lower())


def _refused(name: str) -> InvalidInput:
    close = get_close_matches(_plain(name[:_LONGEST]), _BY_NAME, n=1, cutoff=0.75)
    return InvalidInput(
        f"{name[:_LONGEST]!r} is not an encoding of text that frazil reads",
        code="bad_encoding",
        hint=f"did you mean {close[0]!r}?"
        if close
        else "for example utf-8, utf-16, latin-1, cp1252, shift_jis, gb18030",
    )
