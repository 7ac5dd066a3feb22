"""Text for hash ids: 4 bytes a token, a function of (conversation, hash id) only, so equal ids give equal bytes.

Every token is one short English word with its leading space: about one token for real tokenizers, exactly one for the
simulator's (4 bytes a token). ASCII without quotes or backslashes, so text can be put into JSON bodies as it is.
Pure; called by `prompt`.
"""

import hashlib
from collections.abc import Sequence

TOKEN_BYTES = 4

_WORDS = (
    "ace act add ado age ago aid aim air ale all and ant any ape apt arc are ark arm art ash ask asp ate awe axe bad "
    "bag ban bar bat bay bed bee beg bet bid big bin bit boa bob bog bow box boy bud bug bun bus but buy bye cab can "
    "cap car cat cod cog con cot cow coy cry cub cud cue cup cut dab dad dam day den dew did dig dim din dip doe dog "
    "dot dry due dug dye ear eat ebb eel egg ego elf elk elm end era eve ewe eye fad fan far fat fax fed fee fen few "
    "fig fin fir fit fix fly fog for fox fry fun fur gap gas gel gem get gin god got gum gun gut guy had ham has hat "
    "hay hen her hid him hip his hit hog hop hot how hub hue hug hum hut ice icy ill ink inn ion its jam jar jaw jay "
    "jet jig job joy jug key kid kin kit lab lad lag lap law lay led leg let lid lie lip lit log lot low mad man map "
    "mat may men met mix mob mud mug nap net new nil nod nor not now nut oak oar oat odd off oil old one opt orb ore "
    "our out owe owl own pad pal pan pat paw pay pea peg pen pet pie pig pin pit ply pod pop pot pro pub put rag ran "
    "rap rat raw red"
)
_PLANES = tuple(bytes(ord(word[place]) for word in _WORDS.split()) for place in range(3))
_DIGEST_BYTES = 64


class BlockText:
    """Block texts of one scope of hash ids, made once and kept while they are among the last `blocks_max`."""

    def __init__(self, scope: str, block_tokens: int, *, blocks_max: int = 1 << 18) -> None:
        # blake2b takes a key of at most 64 bytes; a scope may be longer.
        self._key = hashlib.blake2b(scope.encode(), digest_size=32).digest()
        self._block_tokens = block_tokens
        self._blocks_max = blocks_max
        self._made: dict[int, bytes] = {}

    def text(self, ids: Sequence[int]) -> bytes:
        """Bytes of all blocks in order: `len(ids) * block_tokens * TOKEN_BYTES` of them."""
        made = self._made
        try:
            return b"".join([made[one] for one in ids])
        except KeyError:
            missing = [one for one in dict.fromkeys(ids) if one not in made]
            fresh = self._make(missing)
            found = [fresh[one] if one in fresh else made[one] for one in ids]
            self._keep(fresh)
            return b"".join(found)

    def _keep(self, fresh: dict[int, bytes]) -> None:
        self._made.update(fresh)
        while len(self._made) > self._blocks_max:
            del self._made[next(iter(self._made))]

    def _make(self, ids: list[int]) -> dict[int, bytes]:
        size = self._block_tokens
        rounds = -(-size // _DIGEST_BYTES)
        key, blake2b = self._key, hashlib.blake2b
        if rounds == 1:
            digests = [blake2b(one.to_bytes(8, "little"), key=key).digest()[:size] for one in ids]
        else:
            digests = [
                b"".join(
                    blake2b(one.to_bytes(8, "little") + turn.to_bytes(2, "little"), key=key).digest()
                    for turn in range(rounds)
                )[:size]
                for one in ids
            ]
        text = _spell(b"".join(digests))
        width = size * TOKEN_BYTES
        return {one: text[place * width : (place + 1) * width] for place, one in enumerate(ids)}


def _spell(digest: bytes) -> bytes:
    """One word a byte: " ace act ...". Whole planes of letters at a time, because a loop over tokens is too slow."""
    text = bytearray(b" ") * (len(digest) * TOKEN_BYTES)
    for place, letters in enumerate(_PLANES, start=1):
        text[place::TOKEN_BYTES] = digest.translate(letters)
    return bytes(text)
